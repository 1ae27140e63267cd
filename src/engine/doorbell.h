// SPDX-License-Identifier: Apache-2.0
// Lets one thread sleep until another has work for it, at most so long. app/ waits at an engine's
// doorbells between steps.
#pragma once

#include <condition_variable>
#include <mutex>

#include "core/clock.h"

namespace tandem::engine {

class Doorbell {
 public:
  void ring() {
    {
      const std::lock_guard lock(mutex_);
      rung_ = true;
    }
    rings_.notify_one();
  }
  void wait(Duration at_most) {
    std::unique_lock lock(mutex_);
    rings_.wait_for(lock, at_most, [this] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable rings_;
  bool rung_ = false;
};

}  // namespace tandem::engine
