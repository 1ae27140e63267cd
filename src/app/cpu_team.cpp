// SPDX-License-Identifier: Apache-2.0
#include "app/cpu_team.h"

#include <algorithm>

#include "core/check.h"

namespace tandem::app {
namespace {

// A decode step is some hundred short loops one after the other; going to sleep between them would
// cost more than the loops. About 20 us of spinning covers the gaps, then the thread gives its core
// back.
constexpr int kSpins = 2000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

CpuTeam::CpuTeam(int threads) {
  CHECK(threads >= 1 && threads <= 1024, "{} threads", threads);
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { helper_loop(); });
}

CpuTeam::~CpuTeam() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  job_ready_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void CpuTeam::take_ranges(const Job& job) {
  while (true) {
    const int64_t begin = next_.fetch_add(job.grain, std::memory_order_relaxed);
    if (begin >= job.count) return;
    (*job.body)(begin, std::min(begin + job.grain, job.count));
  }
}

void CpuTeam::parallel_for(int64_t count, int64_t grain,
                           const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (helpers_.empty() || count <= grain) {
    body(0, count);
    return;
  }
  const Job job{.body = &body, .count = count, .grain = grain};
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
    next_.store(0, std::memory_order_relaxed);
    helpers_busy_ = static_cast<int>(helpers_.size());
    generation_seen_.store(++generation_, std::memory_order_release);
  }
  job_ready_.notify_all();
  take_ranges(job);
  std::unique_lock lock(mutex_);
  job_done_.wait(lock, [this] { return helpers_busy_ == 0; });
}

void CpuTeam::helper_loop() {
  uint64_t done = 0;
  while (true) {
    for (int i = 0; i < kSpins && generation_seen_.load(std::memory_order_acquire) == done; ++i) {
      pause_briefly();
    }
    Job job;
    {
      std::unique_lock lock(mutex_);
      job_ready_.wait(lock, [&] { return stopping_ || generation_ != done; });
      if (stopping_) return;
      done = generation_;
      job = job_;
    }
    take_ranges(job);
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      last = --helpers_busy_ == 0;
    }
    if (last) job_done_.notify_one();
  }
}

ParallelFor CpuTeam::as_parallel_for() {
  return [this](int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
    parallel_for(count, grain, body);
  };
}

}  // namespace tandem::app
