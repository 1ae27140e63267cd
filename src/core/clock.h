// SPDX-License-Identifier: Apache-2.0
// Time as a value that is passed in. Workers are step(now), so tests and the simulator set the
// time. Monotonic only: wall-clock time appears in logs and in the "created" and Date fields of
// an answer, nowhere else.
#pragma once

#include <chrono>

namespace tandem {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{};
};

}  // namespace tandem
