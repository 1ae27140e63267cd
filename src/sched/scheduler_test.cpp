// SPDX-License-Identifier: Apache-2.0
// The scheduler's rules, one by one. The random runs are in scheduler_property_test.cpp.
#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "sched/fake_worker.h"
#include "sched/tenants.h"

namespace tandem::sched {
namespace {

constexpr TimePoint kStart{};
constexpr TimePoint at(int64_t seconds) {
  return kStart + std::chrono::seconds(seconds);
}

// Pages of 4 tokens; 16 rows a step, chunks of 8.
FakeSettings small(Role role = Role::kWhole, int32_t page_count = 32) {
  return {.sched = {.role = role,
                    .rows_max = 16,
                    .chunk_rows_max = 8,
                    .sequences_max = 8,
                    .waiting_max = 32,
                    .context_tokens_max = 64},
          .page_count = page_count,
          .page_tokens = 4};
}

SequenceSpec spec(uint64_t id, int32_t prompt_tokens, int32_t max_tokens, int32_t first_token = 0) {
  SequenceSpec s{.id = RequestId{id}, .max_tokens = max_tokens};
  for (int32_t i = 0; i < prompt_tokens; ++i) s.prompt.push_back(first_token + i);
  return s;
}

int64_t run_until_idle(FakeWorker& worker, TimePoint now = kStart) {
  int64_t steps = 0;
  while (!worker.live().empty() && steps < 10'000) {
    worker.step(now);
    ++steps;
  }
  return steps;
}

TEST(Scheduler, RefusesSettingsThatCannotWorkByName) {
  kv::PagePool pool({.page_count = 4});
  kv::PrefixCache cache(pool, {.page_tokens = 4});
  const auto param = [&](Settings s) {
    auto made = Scheduler::create(s, pool, cache);
    return made.ok() ? std::string() : made.error().param;
  };
  const Settings good = small().sched;
  EXPECT_EQ(param(good), "");
  Settings s = good;
  s.rows_max = s.sequences_max + 3;  // all decode rows, but less than a page for a prompt
  EXPECT_EQ(param(s), "rows_max");
  s.role = Role::kDecode;
  EXPECT_EQ(param(s), "");
  s = good;
  s.chunk_rows_max = 3;
  EXPECT_EQ(param(s), "chunk_rows_max");
  s = good;
  s.sequences_max = 0;
  EXPECT_EQ(param(s), "sequences_max");
  s = good;
  s.waiting_max = 0;
  EXPECT_EQ(param(s), "waiting_max");
  s = good;
  s.context_tokens_max = 0;
  EXPECT_EQ(param(s), "context_tokens_max");
}

TEST(Scheduler, APromptRunsInChunksThatEndWithPages) {
  FakeWorker worker(small());
  ASSERT_TRUE(worker.add(spec(1, 21, 3), 3).ok());
  std::vector<std::pair<int32_t, int32_t>> rows;
  while (!worker.live().empty()) {
    for (const PlanRow& row : worker.step(kStart).rows) {
      rows.emplace_back(row.position_begin, row.row_count);
    }
  }
  EXPECT_EQ(rows,
            (std::vector<std::pair<int32_t, int32_t>>{{0, 8}, {8, 8}, {16, 5}, {21, 1}, {22, 1}}));
  EXPECT_EQ(worker.ends().at(RequestId{1}).output.size(), 3U);
}

TEST(Scheduler, DecodeRowsComeFirstAndPromptsGetTheRest) {
  FakeWorker worker(small());
  ASSERT_TRUE(worker.add(spec(1, 4, 20), 20).ok());
  worker.step(kStart);
  ASSERT_TRUE(worker.add(spec(2, 30, 1, 100), 1).ok());
  ASSERT_TRUE(worker.add(spec(3, 30, 1, 200), 1).ok());
  const Plan& plan = worker.step(kStart);
  ASSERT_EQ(plan.rows.size(), 3U);
  EXPECT_EQ(plan.rows[0].id, RequestId{1});
  EXPECT_EQ(plan.rows[1].row_count, 8);
  EXPECT_EQ(plan.rows[2].row_count, 4) << "7 rows are left: a page";
}

TEST(Scheduler, WhatCanNeverFitIsRefusedAtOnceAndTheLimitNamed) {
  FakeWorker worker(small(Role::kWhole, 8));  // 32 positions
  const auto refusal = [&](SequenceSpec s) { return worker.add(std::move(s), 1).error(); };
  Error error = refusal(spec(1, 64, 1));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.param, "prompt");
  EXPECT_NE(error.text.find("context of 64 tokens"), std::string::npos) << error.text;
  error = refusal(spec(1, 20, std::numeric_limits<int32_t>::max()));
  EXPECT_EQ(error.param, "max_tokens");
  error = refusal(spec(1, 20, 14));
  EXPECT_EQ(error.param, "max_tokens");
  EXPECT_NE(error.text.find("KV cache of 32 tokens"), std::string::npos) << error.text;
  EXPECT_EQ(refusal(spec(1, 33, 1)).param, "prompt");
  ASSERT_TRUE(worker.add(spec(1, 20, 13), 13).ok()) << "the last token needs no place";
  run_until_idle(worker);
  EXPECT_EQ(worker.ends().at(RequestId{1}).output.size(), 13U);
}

TEST(Scheduler, TheWaitingLineIsBounded) {
  FakeSettings settings = small();
  settings.sched.waiting_max = 2;
  FakeWorker worker(settings);
  ASSERT_TRUE(worker.add(spec(1, 4, 1), 1).ok());
  ASSERT_TRUE(worker.add(spec(2, 4, 1), 1).ok());
  EXPECT_EQ(worker.add(spec(3, 4, 1), 1).error().code, ErrorCode::kResourceExhausted);
  worker.step(kStart);
  EXPECT_TRUE(worker.add(spec(3, 4, 1), 1).ok());
}

TEST(Scheduler, OneTenantDoesNotFillTheWaitingLine) {
  FakeSettings settings = small();
  settings.sched.tenant_waiting_max = 2;
  FakeWorker worker(settings);
  ASSERT_TRUE(worker.add(spec(1, 4, 1), 1).ok());
  ASSERT_TRUE(worker.add(spec(2, 4, 1), 1).ok());
  EXPECT_EQ(worker.add(spec(3, 4, 1), 1).error().code, ErrorCode::kResourceExhausted);
  SequenceSpec other = spec(3, 4, 1);
  other.tenant = 1;
  EXPECT_TRUE(worker.add(std::move(other), 1).ok());
}

TEST(Scheduler, ChoicesOfOnePromptComputeItOnce) {
  FakeWorker worker(small());
  for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(worker.add(spec(id, 22, 2), 2).ok());
  worker.step(kStart);
  EXPECT_EQ(worker.scheduler().stats().twin_waiting, 4);
  run_until_idle(worker);
  const Stats stats = worker.scheduler().stats();
  EXPECT_EQ(stats.prompt_rows, 22 + 4 * 2) << "five full pages are shared";
  EXPECT_EQ(stats.prefix_hit_tokens, 4 * 20);
}

TEST(Scheduler, ATwinOfAnotherSaltDoesNotWait) {
  FakeWorker worker(small());
  for (uint64_t id = 1; id <= 3; ++id) {
    SequenceSpec s = spec(id, 22, 1);
    s.salt = id;
    ASSERT_TRUE(worker.add(std::move(s), 1).ok());
  }
  worker.step(kStart);
  EXPECT_EQ(worker.scheduler().stats().running, 3);
  run_until_idle(worker);
  EXPECT_EQ(worker.scheduler().stats().prefix_hit_tokens, 0);
}

TEST(Scheduler, TheTwinGoesOnAloneWhenTheFirstIsCancelled) {
  FakeWorker worker(small());
  ASSERT_TRUE(worker.add(spec(1, 30, 1), 1).ok());
  ASSERT_TRUE(worker.add(spec(2, 30, 1), 1).ok());
  worker.step(kStart);
  EXPECT_TRUE(worker.cancel(RequestId{1}));
  const Plan& plan = worker.step(kStart);
  ASSERT_EQ(plan.admitted.size(), 1U);
  EXPECT_EQ(plan.admitted[0].cached_tokens, 8) << "what the first got done is used";
  run_until_idle(worker);
}

TEST(Scheduler, TheWaitForATwinEnds) {
  FakeSettings settings = small(Role::kDecode);
  settings.sched.twin_wait_max = std::chrono::seconds(5);
  FakeWorker worker(settings);
  ASSERT_TRUE(worker.add(spec(1, 22, 2), 2).ok());
  ASSERT_TRUE(worker.add(spec(2, 22, 2), 2).ok());
  worker.step(at(0));
  worker.step(at(4));
  EXPECT_EQ(worker.scheduler().stats().twin_waiting, 1);
  worker.step(at(5));  // the first one's handoff never comes
  EXPECT_EQ(worker.scheduler().stats().reserved, 2);
}

TEST(Scheduler, SmallRequestsPassALargeOneOnlySoOften) {
  FakeSettings settings = small(Role::kWhole, 16);
  settings.sched.bypass_max = 3;
  settings.sched.prefix_cache = false;
  FakeWorker worker(settings);
  uint64_t id = 1;
  const auto add_small = [&] { return worker.add(spec(id++, 8, 9), 9).ok(); };  // 4 pages
  ASSERT_TRUE(add_small() && add_small());
  worker.step(kStart);
  const RequestId large{1000};
  ASSERT_TRUE(worker.add(spec(1000, 40, 8), 8).ok());  // 12 pages: waits
  int64_t passed = 0;
  for (int step = 0;
       step < 200 && worker.live().contains(large) && worker.live().at(large).admitted_step < 0;
       ++step) {
    while (worker.scheduler().stats().waiting < 6) ASSERT_TRUE(add_small());
    const Plan& plan = worker.step(kStart);
    for (const Admitted& admitted : plan.admitted) passed += admitted.id == large ? 0 : 1;
  }
  EXPECT_EQ(passed, settings.sched.bypass_max);
  EXPECT_GE(worker.live().at(large).admitted_step, 0);
  run_until_idle(worker);
}

TEST(Scheduler, DeadlinesEndWaitingRunningAndReservedSequences) {
  FakeWorker worker(small(Role::kWhole, 8));
  SequenceSpec running = spec(1, 8, 20);
  running.deadline = at(10);
  SequenceSpec waiting = spec(2, 24, 9, 100);
  waiting.deadline = at(5);
  ASSERT_TRUE(worker.add(std::move(running), 20).ok());
  ASSERT_TRUE(worker.add(std::move(waiting), 9).ok());
  worker.step(at(0));
  EXPECT_EQ(worker.step(at(4)).ended.size(), 0U);
  EXPECT_EQ(worker.step(at(5)).ended.at(0).id, RequestId{2});
  EXPECT_EQ(worker.step(at(10)).ended.at(0).id, RequestId{1});
  EXPECT_TRUE(worker.scheduler().idle());
  EXPECT_EQ(worker.pool().counts().referenced, 0);
  EXPECT_EQ(worker.scheduler().stats().expired, 2);
}

// The sweeper must not depend on there being work: nothing waits or runs, and all pages are taken.
TEST(Scheduler, TimersRunWithAFullPoolAndNothingToSchedule) {
  FakeWorker worker(small(Role::kDecode, 8));
  SequenceSpec stuck = spec(1, 24, 9);
  stuck.deadline = at(10);
  ASSERT_TRUE(worker.add(std::move(stuck), 9).ok());
  worker.step(at(0));
  EXPECT_EQ(worker.pool().available(), 0);
  EXPECT_TRUE(worker.scheduler().idle());
  EXPECT_EQ(worker.step(at(10)).ended.size(), 1U);
  EXPECT_EQ(worker.pool().counts().quarantined, 8) << "its handoff may still write";
  ASSERT_TRUE(worker.add(spec(2, 24, 9, 50), 9).ok());
  EXPECT_EQ(worker.step(at(11)).admitted.size(), 0U);
  worker.complete_transfer(RequestId{1}, false);
  EXPECT_EQ(worker.step(at(12)).admitted.size(), 1U);
}

TEST(Scheduler, APrefillWorkersPagesOutliveItsOpenTransfer) {
  FakeWorker worker(small(Role::kPrefill, 8));
  ASSERT_TRUE(worker.add(spec(1, 12, 5), 5).ok());
  worker.step(kStart);
  worker.scheduler().transfer_opened(RequestId{1});
  worker.step(kStart);
  EXPECT_EQ(worker.scheduler().stats().held, 1);
  EXPECT_EQ(worker.scheduler().pages(RequestId{1}).size(), 3U) << "no room for output";
  EXPECT_TRUE(worker.cancel(RequestId{1}));
  EXPECT_EQ(worker.pool().counts().quarantined, 3);
  worker.scheduler().transfer_closed(RequestId{1});
  worker.scheduler().transfer_closed(RequestId{1});  // nothing is open: nothing happens
  EXPECT_EQ(worker.pool().counts(), (kv::PageCounts{.total = 8, .free = 5, .cached = 3}));
  EXPECT_FALSE(worker.cancel(RequestId{1}));
}

TEST(Scheduler, ADecoderReusesThePrefixItHas) {
  FakeWorker worker(small(Role::kDecode));
  ASSERT_TRUE(worker.add(spec(1, 13, 4), 4).ok());
  worker.step(kStart);
  worker.complete_transfer(RequestId{1}, true);
  run_until_idle(worker);
  ASSERT_TRUE(worker.add(spec(2, 13, 1), 1).ok());
  EXPECT_EQ(worker.step(kStart).admitted.at(0).cached_tokens, 12);
  worker.complete_transfer(RequestId{2}, true);
  EXPECT_TRUE(worker.live().empty());
}

TEST(Scheduler, PromptLogitsTakeNothingFromTheCache) {
  FakeWorker worker(small());
  ASSERT_TRUE(worker.add(spec(1, 12, 1), 1).ok());
  run_until_idle(worker);
  SequenceSpec s = spec(2, 12, 0);
  s.prompt_logits = true;
  ASSERT_TRUE(worker.add(std::move(s), 0).ok());
  EXPECT_EQ(worker.step(kStart).admitted.at(0).cached_tokens, 0);
  run_until_idle(worker);
  EXPECT_EQ(worker.ends().at(RequestId{2}).output.size(), 0U);
}

// Two tenants that always want more, one with three times longer requests and four times as many
// of them waiting: both are served the same number of rows.
TEST(Scheduler, BackloggedTenantsAreServedAlike) {
  for (const Role role : {Role::kWhole, Role::kPrefill}) {
    FakeWorker worker(small(role, 64));
    uint64_t id = 0;
    int64_t worst = 0;
    const auto waiting_of = [&](uint64_t tenant) {
      return std::ranges::count_if(worker.live(), [&](const auto& entry) {
        return entry.second.spec.tenant == tenant && entry.second.admitted_step < 0;
      });
    };
    const auto refill = [&](uint64_t tenant, int count, int32_t prompt_tokens, int32_t output) {
      while (waiting_of(tenant) < count) {
        ++id;
        SequenceSpec s = spec(id, prompt_tokens, output, static_cast<int32_t>(id * 64));
        s.tenant = tenant;
        ASSERT_TRUE(worker.add(std::move(s), output).ok());
      }
    };
    for (int step = 0; step < 3000; ++step) {
      refill(1, 16, 30, 9);
      refill(2, 4, 10, 3);
      worker.step(kStart);
      const auto& rows = worker.rows_by_tenant();
      if (rows.size() == 2) worst = std::max(worst, std::abs(rows.at(1) - rows.at(2)));
    }
    // Admission keeps served + reserved within one request of each other, and what is reserved of
    // a tenant is at most what eight admitted sequences may take.
    EXPECT_LE(worst, 39 + 8 * 39);
    EXPECT_GT(worker.rows_by_tenant().at(1), 10'000);
    EXPECT_GT(worker.rows_by_tenant().at(2), 10'000);
    RecordProperty(role == Role::kWhole ? "worst_whole" : "worst_prefill", static_cast<int>(worst));
  }
}

TEST(Scheduler, EachChunkGoesToTheTenantServedLeast) {
  FakeWorker worker(small());
  ASSERT_TRUE(worker.add(spec(1, 30, 1, 0), 1).ok());
  ASSERT_TRUE(worker.add(spec(2, 30, 1, 100), 1).ok());
  worker.step(kStart);
  SequenceSpec other = spec(3, 30, 1, 200);
  other.tenant = 1;
  ASSERT_TRUE(worker.add(std::move(other), 1).ok());
  const Plan& plan = worker.step(kStart);
  ASSERT_EQ(plan.rows.size(), 2U);
  EXPECT_EQ(plan.rows[0].id, RequestId{1});
  EXPECT_EQ(plan.rows[1].id, RequestId{3}) << "not 2: its tenant has just had a chunk";
}

TEST(Scheduler, ABurstOfOneTenantDoesNotTakeEveryPlace) {
  FakeWorker worker(small());
  for (uint64_t id = 1; id <= 16; ++id) {
    SequenceSpec s = spec(id, 8, 2, static_cast<int32_t>(id * 64));
    s.tenant = id <= 8 ? 0 : 1;  // before a row is computed, both counters stand at 0
    ASSERT_TRUE(worker.add(std::move(s), 2).ok());
  }
  const Plan& plan = worker.step(kStart);
  ASSERT_EQ(plan.admitted.size(), 8U);
  EXPECT_EQ(std::ranges::count_if(plan.admitted, [](const Admitted& a) { return a.id.value > 8; }),
            4);
}

TEST(Tenants, WhoWasAwayStartsLevelWithThoseWhoWaited) {
  Tenants tenants(8);
  const int32_t a = tenants.enter(1);
  tenants.at(a).served = 100;
  const int32_t b = tenants.enter(2);
  EXPECT_EQ(tenants.at(b).served, 100) << "no credit for having been away";
  tenants.at(b).served = 150;
  tenants.leave(b);
  tenants.at(a).served = 120;
  EXPECT_EQ(tenants.at(tenants.enter(2)).served, 150) << "no new start by a short absence";
  EXPECT_EQ(tenants.at(tenants.enter(3)).served, 120);
}

TEST(Tenants, RemembersOnlySoMany) {
  Tenants tenants(4);
  const int32_t first = tenants.enter(0);
  for (uint64_t key = 1; key < 1000; ++key) {
    const int32_t slot = tenants.enter(key);
    tenants.at(slot).served += static_cast<int64_t>(key % 7);
    tenants.leave(slot);
    ASSERT_LE(tenants.remembered(), 4);
  }
  EXPECT_EQ(tenants.at(first).key, 0U);
  EXPECT_EQ(tenants.present(), 1);
}

TEST(SchedulerDeathTest, MisuseIsABug) {
  FakeWorker worker(small());
  ASSERT_TRUE(worker.add(spec(1, 4, 2), 2).ok());
  EXPECT_DEATH((void)worker.scheduler().add(spec(1, 4, 2)), "request 1 is in use");
  EXPECT_DEATH(worker.scheduler().chunk_done(RequestId{1}), "had no rows");
  EXPECT_DEATH(worker.scheduler().finish(RequestId{2}), "request 2 is unknown");
  EXPECT_DEATH(
      {
        (void)worker.scheduler().step(kStart);
        (void)worker.scheduler().step(kStart);
      },
      "rows of the last plan still open");
}

}  // namespace
}  // namespace tandem::sched
