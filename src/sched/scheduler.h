// SPDX-License-Identifier: Apache-2.0
// Which sequences run in the next step, and with which rows: continuous batching with chunked
// prompts, over the pages of kv/. A worker of engine/ and the simulator of plan/ call it, from one
// thread. Pure: no clock, thread or device; the same calls give the same plans.
//
// A step:   const Plan& plan = scheduler.step(now);
//           compute plan.rows; for each row chunk_done(id); where it samples and the sequence goes
//           on: token_sampled(id, token), else finish(id).
// No event may come between step() and the end of the computation of its rows.
// docs/scheduling.md says why the rules are what they are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/clock.h"
#include "core/ids.h"
#include "core/result.h"
#include "kv/page_pool.h"
#include "kv/prefix_cache.h"
#include "sched/plan.h"

namespace tandem::sched {

class Scheduler {
 public:
  // `pool` and `cache` (of the same pool) belong to the worker, outlive the scheduler, and are
  // changed by nobody else meanwhile. Errors name the setting.
  static Result<Scheduler> create(const Settings& settings, kv::PagePool& pool,
                                  kv::PrefixCache& cache);
  ~Scheduler();
  Scheduler(Scheduler&&) noexcept;
  Scheduler& operator=(Scheduler&&) noexcept;

  // --- events
  // kInvalidArgument: it could never run, `param` and the text name the limit. kResourceExhausted:
  // waiting_max or tenant_waiting_max is reached.
  Result<void> add(SequenceSpec spec);
  // kDecode: the KV of the whole prompt has come and was verified; `first_token` follows it. The
  // transfer is closed.
  void join(RequestId id, int32_t first_token);
  // The rows that the last plan gave to `id` are computed; what they filled enters the cache.
  // Not called for a row that failed: cancel() then.
  void chunk_done(RequestId id);
  void token_sampled(RequestId id, int32_t token);
  // The sequence ends as it should. kPrefill: its pages aren't needed any more.
  void finish(RequestId id);
  // Ends it in whatever state it is. False: unknown, or ended before.
  bool cancel(RequestId id);

  // While a transfer is open, an ended sequence's pages are quarantined, not freed. kDecode opens
  // it by itself at admission (fails closed); kPrefill calls transfer_opened() before its first
  // push. After the end of a sequence whose transfer is open, transfer_closed() is still due;
  // for an id without an open transfer it does nothing.
  void transfer_opened(RequestId id);
  void transfer_closed(RequestId id);

  // --- plan. Drops what is past its deadline, admits, then plans rows. The plan is valid until the
  // next step(); call it on every turn of the worker's loop, also without work.
  const Plan& step(TimePoint now);

  // --- queries
  [[nodiscard]] bool knows(RequestId id) const;
  [[nodiscard]] std::span<const PageId> pages(RequestId id) const;    // empty while waiting
  [[nodiscard]] std::span<const int32_t> tokens(RequestId id) const;  // prompt and output
  [[nodiscard]] int32_t cached_tokens(RequestId id) const;
  [[nodiscard]] bool idle() const;  // nothing waits and nothing has rows
  [[nodiscard]] Stats stats() const;
  void check_invariants() const;  // walks everything: for tests

 private:
  struct State;
  explicit Scheduler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem::sched
