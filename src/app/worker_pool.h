// SPDX-License-Identifier: Apache-2.0
// Threads for work that must not hold up the I/O thread: JSON, templates, tokenising. A bounded
// queue: a full one is an answer (try_post is false), not a wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::app {

class WorkerPool {
 public:
  WorkerPool(int threads, size_t queue_max);
  ~WorkerPool();  // finishes what is queued
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] bool try_post(std::function<void()> work);

 private:
  void loop();

  const size_t queue_max_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem::app
