// SPDX-License-Identifier: Apache-2.0
// What /live and /ready say. Both derive from progress, not from the fact that a socket answers:
// live means that the engine's loop turns, ready means that a request sent now would be served.
// Called by Service on the I/O thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "engine/api.h"

namespace tandem::serve {

struct HealthLimits {
  Duration stall_after = std::chrono::seconds(30);     // no turn of the engine's loop: not live
  Duration progress_after = std::chrono::seconds(60);  // work, but no progress: not ready
};

class Health {
 public:
  explicit Health(HealthLimits limits) : limits_(limits) {}

  // The engine had nothing to do and now has: the wait for progress begins here.
  void work_began(TimePoint now) { seen_ = now; }

  // Why not, in fixed words; nothing where all is well.
  [[nodiscard]] std::optional<std::string_view> why_not_live(const engine::EngineStatus& status,
                                                             TimePoint now) const;
  // `front_progress`: any count of the front end that grows with work done. `busy`: requests are
  // with the engine.
  [[nodiscard]] std::optional<std::string_view> why_not_ready(const engine::EngineStatus& status,
                                                              bool busy, int64_t front_progress,
                                                              TimePoint now);

 private:
  HealthLimits limits_;
  int64_t progress_ = -1;
  TimePoint seen_{};  // when the progress was last seen to grow, or there was no work
};

// {"status":"ok"} or {"status":"unavailable","reason":...}
[[nodiscard]] std::string health_json(std::optional<std::string_view> why_not);

}  // namespace tandem::serve
