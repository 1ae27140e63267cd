// SPDX-License-Identifier: Apache-2.0
// Shows long work on stderr: one line that is rewritten on a terminal, a plain line every few
// seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tandem::app {

class Progress {
 public:
  Progress(std::string what, bool quiet);
  void update(uint64_t done, uint64_t total);  // bytes
  void finish(const std::string& result);      // "loading weights: 29 MB in 0.1 s"

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  std::string what_;
  bool quiet_;
  bool terminal_;
  SteadyTime begin_, shown_;
};

}  // namespace tandem::app
