// SPDX-License-Identifier: Apache-2.0
// A bounded load generator for one HTTP server on this machine: one thread, epoll, each connection
// sends its next request when the last one has been answered. For http_bench and bench/serve_load.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/result.h"

namespace tandem::serve {

// Times by logarithmic buckets, 16 to an octave: a percentile is at most 7 % too large.
class LatencyHistogram {
 public:
  void add(double seconds);
  [[nodiscard]] double percentile_s(double percent) const;  // 0 if nothing was added
  [[nodiscard]] uint64_t count() const { return count_; }

 private:
  static constexpr int kPerOctave = 16, kOctaves = 40;  // from 1 ns to 18 minutes
  std::array<uint64_t, kPerOctave * kOctaves> counts_{};
  uint64_t count_ = 0;
};

struct LoadOptions {
  std::string address = "127.0.0.1";  // IPv4, loopback only
  uint16_t port = 0;
  std::string request;       // all bytes of it
  int connections = 1;       // at most 4096
  uint64_t requests = 0;     // in all; 0: as many as the time allows
  double seconds = 1;        // then no further request is sent …
  double grace_seconds = 5;  // … and what is in flight has so long to end
};

struct LoadResult {
  uint64_t requests = 0;  // answered in full with 200
  uint64_t events = 0;    // of event streams ("\n\n" in the payload)
  uint64_t failures = 0;  // another status, or cut
  uint64_t bytes = 0;
  double seconds = 0;      // from the first byte sent to the last answer
  LatencyHistogram first;  // request sent -> first event, or the whole answer
  LatencyHistogram gap;    // event -> next event of one stream
};

// Errors: kInvalidArgument (options), kUnavailable (no connection).
Result<LoadResult> run_load(const LoadOptions& options);

}  // namespace tandem::serve
