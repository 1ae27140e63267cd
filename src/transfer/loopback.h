// SPDX-License-Identifier: Apache-2.0
// Transport inside one process: a queue and memcpy. `tandem serve` joins its two workers with it;
// tests put delays and faults around it. step() of the sending endpoint moves the bytes, so a
// transfer is truly asynchronous to both workers. Two endpoints may live on two threads.
#pragma once

#include <memory>

#include "transfer/transport.h"

namespace tandem::transfer {

struct LoopbackLimits {
  size_t open_requests_max = 4096;        // per endpoint: queued, moving, or done and unpolled
  size_t inbox_max = 4096;                // arrivals that a receiver has not taken
  uint64_t bytes_per_step = 64ULL << 20;  // at least one piece moves in each step
};

// The endpoints made by one fabric reach each other, and nothing else.
class LoopbackFabric {
 public:
  explicit LoopbackFabric(LoopbackLimits limits = {});
  ~LoopbackFabric();
  [[nodiscard]] std::unique_ptr<Transport> make_endpoint();

 private:
  struct Shared;
  class Endpoint;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tandem::transfer
