// SPDX-License-Identifier: Apache-2.0
// What every worker has, whatever its role: KV bytes, pages, prefix cache, scheduler and the token
// path. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "engine/api.h"
#include "engine/batch_runner.h"
#include "engine/compute.h"
#include "engine/coordinator.h"
#include "kv/page_pool.h"
#include "kv/prefix_cache.h"
#include "model/kv_store.h"
#include "sched/scheduler.h"

namespace tandem::engine {

struct WorkerSettings {
  sched::Settings sched;  // its role is set by the worker
  int32_t page_count = 0;
  int32_t cache_floor_pages = 0;  // see kv::PagePoolSettings::group_floor_pages
  uint64_t cache_secret = 0;      // see kv::PrefixCacheSettings::secret
  int32_t logit_rows_max = 256;   // of one forward pass
};

// A prompt's way to its first token, in a worker that computes prompts.
struct PromptProgress {
  bool started = false;
  TimePoint first_chunk_start{}, last_chunk_end{};
  int32_t cached_tokens = 0;
  std::vector<SampledToken> logprobs;

  // `now`: when the first token goes out.
  [[nodiscard]] FirstToken first_token(const Submit& submit, std::optional<SampledToken> token,
                                       TimePoint now);
};

class WorkerCore {
 public:
  static Result<std::unique_ptr<WorkerCore>> create(const WorkerSettings& settings,
                                                    sched::Role role, Compute compute);
  WorkerCore(const WorkerCore&) = delete;
  WorkerCore& operator=(const WorkerCore&) = delete;

  [[nodiscard]] EngineStatus::Worker status() const;
  [[nodiscard]] int64_t kv_tokens_max() const {
    return static_cast<int64_t>(pool.counts().total) * compute.kv_layout.page_tokens;
  }
  [[nodiscard]] sched::SequenceSpec spec_of(const Submit& submit) const;

  const Compute compute;
  const model::KvStore kv;
  kv::PagePool pool;
  kv::PrefixCache cache;
  sched::Scheduler scheduler;
  BatchRunner runner;

 private:
  WorkerCore(const WorkerSettings& settings, sched::Role role, Compute c);
  std::string role_;
};

// Error event of a request that its deadline ended.
[[nodiscard]] Error deadline_error();

}  // namespace tandem::engine
