// SPDX-License-Identifier: Apache-2.0
// The thread team of one CPU rank: splits an op's loop over its threads. One per worker, made at
// start-up.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/exec.h"

namespace tandem::app {

// parallel_for() is called by one thread at a time, the owner, who works along. Ranges are handed
// out in order of asking, `grain` indices at a time, so a slow core takes fewer.
class CpuTeam {
 public:
  explicit CpuTeam(int threads);
  ~CpuTeam();
  CpuTeam(const CpuTeam&) = delete;
  CpuTeam& operator=(const CpuTeam&) = delete;

  void parallel_for(int64_t count, int64_t grain,
                    const std::function<void(int64_t, int64_t)>& body);
  [[nodiscard]] ParallelFor as_parallel_for();
  [[nodiscard]] int threads() const { return static_cast<int>(helpers_.size()) + 1; }

 private:
  struct Job {
    const std::function<void(int64_t, int64_t)>* body = nullptr;
    int64_t count = 0, grain = 1;
  };
  void helper_loop();
  void take_ranges(const Job& job);

  std::mutex mutex_;
  std::condition_variable job_ready_, job_done_;
  Job job_;
  uint64_t generation_ = 0;  // of job_; guarded by mutex_
  int helpers_busy_ = 0;     // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  std::atomic<int64_t> next_{0};
  std::atomic<uint64_t> generation_seen_{0};  // the same number, for the short spin before sleeping
  std::vector<std::thread> helpers_;
};

}  // namespace tandem::app
