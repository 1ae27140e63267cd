// SPDX-License-Identifier: Apache-2.0
// Random events against a worker that checks every value (fake_worker.h), with the invariants of
// the scheduler, the pool and the cache after each one. Then the events stop, and everything must
// come to its one end.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/rng.h"
#include "sched/fake_worker.h"

namespace tandem::sched {
namespace {

class Storm {
 public:
  Storm(uint64_t seed, const FakeSettings& settings)
      : rng_(seed), settings_(settings), worker_(settings) {}

  void operate() {
    const uint64_t choice = rng_.below(16);
    if (choice < 5) {
      add();
    } else if (choice < 6) {
      cancel_random();
    } else if (choice < 9) {
      touch_transfer();
    } else if (choice < 10) {
      now_ += std::chrono::milliseconds(rng_.below(3000));
    } else {
      step();
    }
    check();
  }

  // Nothing new comes: all ends within a bound.
  void drain() {
    while (!worker_.transfers().empty() && settings_.sched.role == Role::kDecode &&
           worker_.live().empty()) {
      worker_.complete_transfer(worker_.transfers().begin()->first, true);
    }
    int64_t left = 200 * (settings_.sched.waiting_max + settings_.sched.sequences_max);
    while (!worker_.live().empty() || !worker_.transfers().empty()) {
      ASSERT_GT(left--, 0) << worker_.live().size() << " sequences never end";
      if (!worker_.transfers().empty()) {
        worker_.complete_transfer(worker_.transfers().begin()->first, true);
      }
      close_one_push();
      step();
      check();
    }
    while (!pushes_.empty()) close_one_push();
    check();
    const kv::PageCounts counts = worker_.pool().counts();
    EXPECT_EQ(counts.referenced, 0);
    EXPECT_EQ(counts.quarantined, 0);
    EXPECT_EQ(counts.free + counts.cached, counts.total);
    const Stats stats = worker_.scheduler().stats();
    EXPECT_EQ(stats.added, stats.finished + stats.cancelled + stats.expired);
    EXPECT_EQ(stats.added, static_cast<int64_t>(worker_.ends().size()));
    EXPECT_EQ(stats.prompt_rows_left, 0);
    EXPECT_EQ(stats.tenants, 0);
    check_outputs();
  }

  [[nodiscard]] FakeWorker& worker() { return worker_; }

 private:
  void check() {
    worker_.scheduler().check_invariants();
    worker_.pool().check_invariants();
    worker_.cache().check_invariants();
  }

  void add() {
    SequenceSpec spec{.id = RequestId{next_id_++}};
    // Prompts of few kinds of pages, so that prefixes are shared often.
    const auto prompt_tokens = rng_.between(1, rng_.below(8) == 0 ? 60 : 20);
    const auto variant = static_cast<int32_t>(rng_.below(3));
    for (int64_t i = 0; i < prompt_tokens; ++i) {
      spec.prompt.push_back(i < 8 || rng_.below(20) > 0 ? variant : 7);
    }
    spec.max_tokens = static_cast<int32_t>(rng_.between(1, 12));
    spec.salt = rng_.below(3);
    spec.tenant = rng_.below(4);
    spec.prompt_logits = rng_.below(10) == 0;
    if (spec.prompt_logits && rng_.below(2) == 0) spec.max_tokens = 0;
    if (settings_.sched.role == Role::kDecode) {
      spec.prompt_logits = false;
      spec.max_tokens = std::max(spec.max_tokens, 1);
    }
    if (rng_.below(4) == 0) {
      spec.deadline = now_ + std::chrono::milliseconds(rng_.below(20'000) + 1);
    }
    const auto stop_after =
        static_cast<int32_t>(spec.max_tokens == 0 ? 0 : rng_.between(1, spec.max_tokens));
    specs_[spec.id] = spec;
    const int64_t tokens = prompt_tokens + spec.max_tokens;
    const int64_t positions = settings_.sched.role == Role::kPrefill
                                  ? prompt_tokens
                                  : std::max(prompt_tokens, tokens - 1);
    const bool never = tokens > settings_.sched.context_tokens_max ||
                       positions > int64_t{settings_.page_count} * settings_.page_tokens;
    const auto waiting_of_tenant = std::ranges::count_if(worker_.live(), [&](const auto& entry) {
      return entry.second.spec.tenant == spec.tenant && entry.second.admitted_step < 0;
    });
    const bool full = worker_.scheduler().stats().waiting >= settings_.sched.waiting_max ||
                      waiting_of_tenant >= settings_.sched.tenant_waiting_max;
    auto added = worker_.add(std::move(spec), stop_after);
    ASSERT_EQ(added.ok(), !never && !full);
    if (added.ok()) return;
    ASSERT_EQ(added.error().code,
              never ? ErrorCode::kInvalidArgument : ErrorCode::kResourceExhausted);
  }

  void cancel_random() {
    if (worker_.live().empty()) return;
    auto victim = worker_.live().begin();
    std::advance(victim, static_cast<std::ptrdiff_t>(rng_.below(worker_.live().size())));
    worker_.cancel(victim->first);
  }

  void touch_transfer() {
    if (settings_.sched.role == Role::kPrefill) return touch_push();
    if (worker_.transfers().empty()) return;
    auto transfer = worker_.transfers().begin();
    std::advance(transfer, static_cast<std::ptrdiff_t>(rng_.below(worker_.transfers().size())));
    const RequestId id = transfer->first;
    if (rng_.below(3) == 0) {
      worker_.write_late(id, rng_.next_u64());  // alive or not: nobody else may see it
    } else {
      worker_.complete_transfer(id, rng_.below(10) != 0);
    }
  }

  void touch_push() {
    if (rng_.below(2) == 0) return close_one_push();
    for (const auto& [id, live] : worker_.live()) {
      if (live.admitted_step < 0 || pushes_.contains(id)) continue;
      worker_.scheduler().transfer_opened(id);
      pushes_.insert(id);
      return;
    }
  }

  void close_one_push() {
    if (pushes_.empty()) return;
    worker_.scheduler().transfer_closed(*pushes_.begin());
    pushes_.erase(pushes_.begin());
  }

  // If there is work and no page is held up elsewhere, a step gets on with it.
  void step() {
    const Stats before = worker_.scheduler().stats();
    now_ += std::chrono::milliseconds(1);
    const Plan& plan = worker_.step(now_);
    const bool progress = plan.row_count > 0 || !plan.admitted.empty() || !plan.ended.empty();
    ASSERT_TRUE(progress || before.running == 0) << "running sequences got no row";
    const bool empty = before.running + before.reserved + before.held + before.quarantined == 0;
    ASSERT_TRUE(progress || before.waiting == 0 || !empty) << "an empty worker admits nobody";
  }

  // Each answer is what the prompt alone gives, or the beginning of it.
  void check_outputs() {
    for (const auto& [id, end] : worker_.ends()) {
      const SequenceSpec& spec = specs_.at(id);
      uint64_t hash = fake_prefix(spec.prompt).back();
      for (const int32_t token : end.output) {
        ASSERT_EQ(token, fake_next_token(hash)) << "request " << id.value;
        hash = fake_kv(hash, token);
      }
      if (end.kind == FakeWorker::End::kFinished && spec.max_tokens > 0) {
        ASSERT_FALSE(end.output.empty());
      }
    }
  }

  Rng rng_;
  FakeSettings settings_;
  FakeWorker worker_;
  TimePoint now_{};
  uint64_t next_id_ = 1;
  std::map<RequestId, SequenceSpec> specs_;
  std::set<RequestId> pushes_;  // kPrefill: open transfers, of sequences alive or ended
};

FakeSettings random_settings(Role role, uint64_t seed) {
  Rng rng(seed, 99);
  FakeSettings s{.sched = {.role = role}};
  s.page_tokens = static_cast<int32_t>(rng.between(1, 6));
  s.sched.sequences_max = static_cast<int32_t>(rng.between(1, 8));
  s.sched.waiting_max = static_cast<int32_t>(rng.between(1, 12));
  s.sched.tenant_waiting_max = static_cast<int32_t>(rng.between(1, 12));
  s.sched.rows_max = s.sched.sequences_max + s.page_tokens + static_cast<int32_t>(rng.below(20));
  s.sched.chunk_rows_max = s.page_tokens + static_cast<int32_t>(rng.below(16));
  s.sched.context_tokens_max = static_cast<int32_t>(rng.between(40, 72));
  s.sched.prefix_cache = rng.below(5) != 0;
  s.sched.bypass_max = static_cast<int32_t>(rng.between(1, 5));
  s.sched.blocked_max = static_cast<int32_t>(rng.between(1, 4));
  s.sched.twin_wait_max = std::chrono::milliseconds(rng.between(0, 2000));
  s.page_count = static_cast<int32_t>(rng.between(8, 60)) / s.page_tokens + 4;
  s.group_floor_pages = static_cast<int32_t>(rng.below(3));
  s.hash_bits = rng.below(4) == 0 ? 2 : 128;
  return s;
}

void run_storms(Role role) {
  Stats total;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(seed);
    Storm storm(seed, random_settings(role, seed));
    for (int operation = 0; operation < 2'500; ++operation) {
      storm.operate();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "operation " << operation;
    }
    storm.drain();
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    const Stats stats = storm.worker().scheduler().stats();
    total.finished += stats.finished;
    total.expired += stats.expired;
    total.bypasses += stats.bypasses;
    total.prefix_hit_tokens += stats.prefix_hit_tokens;
  }
  // The storm reached what it is meant to reach.
  EXPECT_GT(total.finished, 1000);
  EXPECT_GT(total.expired, 100);
  EXPECT_GT(total.bypasses, 100);
  EXPECT_GT(total.prefix_hit_tokens, 1000);
}

TEST(SchedulerStorm, Whole) {
  run_storms(Role::kWhole);
}
TEST(SchedulerStorm, Prefill) {
  run_storms(Role::kPrefill);
}
TEST(SchedulerStorm, Decode) {
  run_storms(Role::kDecode);
}

// However the small ones stream in, a request that needs most of the pool gets its turn: it is
// passed bypass_max times at most, and the sequences that run then are finite.
TEST(SchedulerStorm, NobodyStarves) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    FakeSettings settings = random_settings(Role::kWhole, seed);
    settings.page_tokens = 4;
    settings.page_count = 20;
    settings.sched.rows_max = 32;
    settings.sched.chunk_rows_max = 8;
    settings.sched.sequences_max = 8;
    settings.sched.waiting_max = 16;
    settings.sched.tenant_waiting_max = 16;
    settings.sched.context_tokens_max = 80;
    FakeWorker worker(settings);
    Rng rng(seed);
    std::map<RequestId, int64_t> added_step;
    int64_t longest = 0;
    for (uint64_t id = 1; worker.steps() < 2000;) {
      while (worker.scheduler().stats().waiting < 12) {
        const bool large = id % 16 == 0;
        SequenceSpec spec{.id = RequestId{id}, .max_tokens = large ? 10 : 4, .tenant = id % 3};
        spec.prompt.assign(large ? 60 : 6, static_cast<int32_t>(id));
        added_step[spec.id] = worker.steps();
        const int32_t stop_after = spec.max_tokens;
        ASSERT_TRUE(worker.add(std::move(spec), stop_after).ok());
        ++id;
      }
      worker.step(TimePoint{});
      for (const auto& [live_id, live] : worker.live()) {
        longest = std::max(longest, worker.steps() - added_step.at(live_id));
      }
    }
    // 12 waiting and 8 running, each at most 70 rows on its own, and at least 4 rows a step.
    EXPECT_LE(longest, (12 + 8) * 70 / 4) << "seed " << seed;
    EXPECT_GT(worker.ends().size(), 500U);
  }
}

}  // namespace
}  // namespace tandem::sched
