// SPDX-License-Identifier: Apache-2.0
// A worker without a model, for tests: it obeys the scheduler's plans over pages that hold, for
// each position, a hash of all tokens up to there. The next token is a function of that hash, so a
// mixed-up, stale or overwritten page shows as a wrong value, and an answer can be checked against
// one made from the prompt alone.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/rng.h"
#include "kv/page_pool.h"
#include "kv/prefix_cache.h"
#include "sched/scheduler.h"

namespace tandem::sched {

uint64_t fake_kv(uint64_t before, int32_t token);
int32_t fake_next_token(uint64_t kv);
// The hash after each token.
std::vector<uint64_t> fake_prefix(std::span<const int32_t> tokens);

struct FakeSettings {
  Settings sched;
  int32_t page_count = 32;
  int32_t page_tokens = 4;
  int32_t group_floor_pages = 0;
  int32_t hash_bits = 128;
};

class FakeWorker {
 public:
  explicit FakeWorker(const FakeSettings& settings);

  Result<void> add(SequenceSpec spec, int32_t stop_after);  // ends after so many output tokens
  bool cancel(RequestId id);
  // kDecode: the handoff of an admitted sequence, alive or ended, comes to its end.
  void complete_transfer(RequestId id, bool verified);
  // Somebody writes into pages of an open transfer that he may still write.
  void write_late(RequestId id, uint64_t value);
  // One step of the scheduler, computed and checked. Gives its plan.
  const Plan& step(TimePoint now);

  struct Open {  // a transfer
    std::vector<int32_t> prompt;
    std::vector<PageId> pages;
    int32_t cached_pages = 0;
  };
  [[nodiscard]] const std::map<RequestId, Open>& transfers() const { return transfers_; }
  [[nodiscard]] Scheduler& scheduler() { return scheduler_; }
  [[nodiscard]] kv::PagePool& pool() { return pool_; }
  [[nodiscard]] const kv::PrefixCache& cache() const { return cache_; }

  struct Live {
    SequenceSpec spec;
    int32_t stop_after = 0;
    int32_t next_position = 0;  // of the rows to come
    int64_t admitted_step = -1;
    std::vector<int32_t> output;
  };
  struct End {
    enum Kind : uint8_t { kFinished, kCancelled, kExpired } kind;
    std::vector<int32_t> output;
    int64_t step = 0;
  };
  [[nodiscard]] const std::map<RequestId, Live>& live() const { return live_; }
  [[nodiscard]] const std::map<RequestId, End>& ends() const { return ends_; }
  [[nodiscard]] const std::map<uint64_t, int64_t>& rows_by_tenant() const { return tenant_rows_; }
  [[nodiscard]] int64_t steps() const { return steps_; }

 private:
  [[nodiscard]] uint64_t& kv(std::span<const PageId> pages, int32_t position);
  void check_plan(const Plan& plan) const;
  void note_admissions(const Plan& plan);
  void compute(const PlanRow& row);
  void after_row(const PlanRow& row, uint64_t last_kv);
  void end(RequestId id, End::Kind kind);

  FakeSettings settings_;
  kv::PagePool pool_;
  kv::PrefixCache cache_;
  Scheduler scheduler_;
  std::vector<uint64_t> kv_;  // [page_count, page_tokens]
  std::map<RequestId, Live> live_;
  std::map<RequestId, End> ends_;
  std::map<RequestId, Open> transfers_;
  std::vector<RequestId> to_finish_;
  std::map<uint64_t, int64_t> tenant_rows_;
  int64_t steps_ = 0;
};

}  // namespace tandem::sched
