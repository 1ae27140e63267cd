// SPDX-License-Identifier: Apache-2.0
#include "serve/admin.h"

#include "serve/json_writer.h"

namespace tandem::serve {

std::optional<std::string_view> Health::why_not_live(const engine::EngineStatus& status,
                                                     TimePoint now) const {
  if (now - status.last_step > limits_.stall_after) return "the engine's loop does not turn";
  return std::nullopt;
}

std::optional<std::string_view> Health::why_not_ready(const engine::EngineStatus& status, bool busy,
                                                      int64_t front_progress, TimePoint now) {
  int64_t progress = front_progress;
  for (const auto& worker : status.workers) progress += worker.tokens_computed;
  if (progress != progress_ || !busy) {
    progress_ = progress;
    seen_ = now;
  }
  if (!status.accepting) return "the engine takes no new requests";
  if (const auto why = why_not_live(status, now)) return why;
  if (now - seen_ > limits_.progress_after) return "requests wait, but no token is computed";
  return std::nullopt;
}

std::string health_json(std::optional<std::string_view> why_not) {
  if (!why_not) return R"({"status":"ok"})";
  std::string out = R"({"status":"unavailable","reason":)";
  append_json_string(out, *why_not);
  out.push_back('}');
  return out;
}

}  // namespace tandem::serve
