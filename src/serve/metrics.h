// SPDX-License-Identifier: Apache-2.0
// Every number that /metrics shows of the front end. All of it is written and read on the I/O
// thread, so it is plain integers: counting a token costs an addition, not a lock. prometheus-cpp's
// data model and serialiser turn them into text when somebody scrapes. Labels come from fixed sets,
// never from a request.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "engine/api.h"
#include "serve/http_limits.h"

namespace tandem::serve {

// Counts in buckets of seconds; bounds are upper and inclusive, as Prometheus wants them.
class Histogram {
 public:
  static constexpr std::array<double, 19> kBounds = {
      0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
      0.25,   0.5,     1.0,    2.5,   5.0,    10.0,  30.0, 60.0,  300.0};

  void observe(Duration value, int64_t times = 1);
  [[nodiscard]] const std::array<int64_t, kBounds.size() + 1>& counts() const { return counts_; }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] Duration sum() const { return sum_; }  // exact, so that parts can be compared

 private:
  std::array<int64_t, kBounds.size() + 1> counts_{};
  int64_t count_ = 0;
  Duration sum_{};
};

// How a request ended; each that came in ends in exactly one of them.
enum class Outcome : uint8_t { kOk, kClientError, kCancelled, kFailed };
inline constexpr std::array<std::string_view, 4> kOutcomeNames = {"ok", "client_error", "cancelled",
                                                                  "failed"};

// Where the time from the request's head to the first token's bytes went, in order. The parts of
// one request add up to its time to first token exactly.
enum class FirstTokenPart : uint8_t {
  kWait,      // head received -> body complete and a worker took it
  kParse,     // JSON and the gate
  kTemplate,  // chat template
  kTokenise,
  kSubmit,   // back on the I/O thread, handed to the engine
  kQueue,    // engine: waiting
  kPrefill,  // engine: the prompt's chunks
  kSample,   // engine: first token drawn
  kEmit,     // to this thread, detokenised, formatted, handed to the connection
};
inline constexpr std::array<std::string_view, 9> kFirstTokenPartNames = {
    "wait", "parse", "template", "tokenise", "submit", "queue", "prefill", "sample", "emit"};

inline constexpr size_t kErrorCodeCount = static_cast<size_t>(ErrorCode::kInternal) + 1;

struct Metrics {
  int64_t requests = 0;  // that reached a handler
  std::array<int64_t, kOutcomeNames.size()> ended{};
  std::array<int64_t, kErrorCodeCount> errors{};  // answers with an error, by kind
  int64_t running = 0;                            // with the engine now
  int64_t streams = 0;                            // of these, streamed
  int64_t preparing = 0;                          // with a worker now
  int64_t slow_clients = 0;                       // cancelled because they read too slowly
  int64_t unknown_fields = 0;                     // ignored in requests
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  Histogram first_token;
  std::array<Histogram, kFirstTokenPartNames.size()> first_token_parts;
  Histogram inter_token;
  Histogram request;  // received -> ended

  void end(Outcome outcome) { ++ended[static_cast<size_t>(outcome)]; }
  void count_error(ErrorCode code) { ++errors[static_cast<size_t>(code)]; }
};

struct NamedHttpCounters {
  std::string listener;  // "public", "admin"
  const HttpCounters* counters = nullptr;
};

// The Prometheus text format, version 0.0.4.
[[nodiscard]] std::string metrics_text(const Metrics& metrics, const engine::EngineStatus& engine,
                                       const std::vector<NamedHttpCounters>& http);
inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace tandem::serve
