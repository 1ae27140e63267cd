// SPDX-License-Identifier: Apache-2.0
// Faults of the handoff: delayed, lost, altered, repeated and forged transfers and messages, cancel
// and deadlines at every moment. Never a wrong token, every request ends once, every page returns.
#include "engine/handoff.h"

#include <gtest/gtest.h>

#include "core/rng.h"
#include "engine/engine_harness.h"

namespace tandem::engine {
namespace {

using transfer::Fault;
using transfer::FaultPlan;

constexpr int32_t kVocab = 4096;

FakeRig faulty_rig(FaultPlan plan, uint64_t seed) {
  FakeRig rig = small_rig();
  rig.faults = plan;
  rig.fault_seed = seed;
  return rig;
}

void submit_some(Client& client, int count, uint64_t seed) {
  Rng rng(seed);
  for (int i = 0; i < count; ++i) {
    client.submit_prompt(random_prompt(rng, rng.between(1, 60), kVocab),
                         static_cast<int32_t>(rng.between(2, 10)), rng.next_u64());
  }
}

class EachFault : public testing::TestWithParam<Fault> {};

// Alone and often: the answers that come are right, the others say honestly that they failed.
TEST_P(EachFault, NeverGivesAWrongToken) {
  SplitRun run(faulty_rig(FaultPlan{}.with(GetParam(), 0.3F), 11));
  submit_some(run.client, 60, 12);
  run.finish();
  EXPECT_GT(run.faulty->injected(GetParam()), 20);
  int ok = 0;
  for (const auto& [id, answer] : run.client.answers()) {
    if (answer.finish == FinishReason::kError) {
      EXPECT_EQ(answer.error->code, ErrorCode::kUnavailable);
    } else {
      EXPECT_EQ(answer.finish, FinishReason::kLength);
      ++ok;
    }
  }
  const bool harmless = GetParam() == Fault::kDelay || GetParam() == Fault::kWriteTwice ||
                        GetParam() == Fault::kRepeatCount || GetParam() == Fault::kBusy;
  EXPECT_EQ(run.engine->decode().stats().rejected == 0, harmless);
  if (harmless) {
    EXPECT_EQ(ok, 60);
  } else {
    EXPECT_GT(ok, 0);
  }
  run.expect_all_pages_back();
}

// Once the faults stop, everything is served.
TEST_P(EachFault, IsOverWhenTheFaultsStop) {
  SplitRun run(faulty_rig(FaultPlan{}.with(GetParam(), 1.0F), 13));
  submit_some(run.client, 10, 14);
  for (int i = 0; i < 30; ++i) run.step();
  run.faulty->set_plan({});
  run.finish();
  const size_t before = run.client.answers().size();
  submit_some(run.client, 20, 15);
  run.finish();
  size_t seen = 0;
  for (const auto& [id, answer] : run.client.answers()) {
    if (seen++ >= before) {
      EXPECT_EQ(answer.finish, FinishReason::kLength);
    }
  }
  run.expect_all_pages_back();
}

INSTANTIATE_TEST_SUITE_P(Handoff, EachFault,
                         testing::Values(Fault::kDelay, Fault::kLose, Fault::kLoseBytes,
                                         Fault::kCorrupt, Fault::kWriteTwice, Fault::kRepeatCount,
                                         Fault::kFail, Fault::kBusy));

// The canary: without the digest the same altered bytes reach the client as wrong tokens.
TEST(Handoff, WithoutTheDigestAlteredBytesGiveWrongTokens) {
  FakeRig rig = faulty_rig(FaultPlan{}.with(Fault::kCorrupt, 0.3F), 11);
  rig.split.decode.incoming.check_digest = false;
  SplitRun run(rig);
  run.client.count_wrong_tokens();
  submit_some(run.client, 60, 12);
  run.finish();
  EXPECT_GT(run.faulty->injected(Fault::kCorrupt), 20);
  EXPECT_GT(run.client.wrong_tokens(), 20);
}

TEST(Handoff, OneFailedHandoffIsComputedAnewWithoutRepeatingAToken) {
  SplitRun run(faulty_rig(FaultPlan{}.with(Fault::kCorrupt, 1.0F), 16));
  const RequestId id = run.client.submit_prompt({1, 2, 3, 4, 5, 6}, 8);
  while (true) {
    run.clock.advance(std::chrono::milliseconds(1));
    run.engine->step_decode(run.clock.now());
    if (run.engine->decode().stats().rejected > 0) break;
    run.engine->step_prefill(run.clock.now());
  }
  run.client.collect();
  EXPECT_EQ(run.client.answer(id).tokens.size(), 1U);
  run.faulty->set_plan({});
  run.finish();
  EXPECT_EQ(run.client.answer(id).finish, FinishReason::kLength);
  EXPECT_EQ(run.client.answer(id).tokens.size(), 8U);
  EXPECT_EQ(run.engine->decode().stats().asked, 2);
}

TEST(Handoff, TwoFailedHandoffsAreAnHonestError) {
  SplitRun run(faulty_rig(FaultPlan{}.with(Fault::kLose, 1.0F), 17));
  const RequestId id = run.client.submit_prompt({1, 2, 3, 4, 5, 6}, 8);
  run.finish();
  EXPECT_EQ(run.client.answer(id).finish, FinishReason::kError);
  EXPECT_EQ(run.client.answer(id).error->code, ErrorCode::kUnavailable);
  EXPECT_EQ(run.engine->decode().stats().asked, 2);
  run.expect_all_pages_back();
}

// A cancel ends the request within one step, whatever state it is in; its pages come back only
// when its transfers are over.
TEST(Handoff, CancelInEveryState) {
  std::map<std::optional<RequestState>, int> seen;
  for (const int32_t max_tokens : {1, 12}) {
    for (int when = 0; when < 60; ++when) {
      FakeRig rig = faulty_rig(FaultPlan{.delay_steps_max = 20}.with(Fault::kDelay, 0.7F), 18);
      SplitRun run(rig);
      Rng rng(19);
      const RequestId other = run.client.submit_prompt(random_prompt(rng, 30, kVocab), 10);
      const RequestId id = run.client.submit_prompt(random_prompt(rng, 60, kVocab), max_tokens);
      if (when == 1) run.engine->step_decode(run.clock.now());  // the prefiller hasn't heard of it
      for (int i = 1; i < when; ++i) run.step();
      ++seen[run.engine->coordinator().state(id)];
      const bool ended = run.client.answer(id).ended();
      run.client.cancel(id);
      run.client.cancel(id);  // idempotent
      run.step();
      EXPECT_TRUE(run.client.answer(id).ended());
      if (!ended) {
        EXPECT_EQ(run.client.answer(id).finish, FinishReason::kCancelled);
      }
      const auto state = run.engine->coordinator().state(id);
      EXPECT_TRUE(!state || state == RequestState::kQuarantined);
      run.finish();
      EXPECT_EQ(run.client.answer(other).finish, FinishReason::kLength);
      run.expect_all_pages_back();
    }
  }
  EXPECT_GT(seen[RequestState::kQueued], 0);
  EXPECT_GT(seen[RequestState::kPrefill], 0);
  EXPECT_GT(seen[RequestState::kHandoff], 0);
  EXPECT_GT(seen[RequestState::kDecode], 0);
  EXPECT_GT(seen[std::nullopt], 0);
}

TEST(Handoff, PagesOfACancelledRequestStayQuarantinedUntilTheTransferIsOver) {
  FakeRig rig = small_rig();
  rig.loopback.bytes_per_step = 1;  // one page a step
  SplitRun run(rig);
  const RequestId id = run.client.submit_prompt({1, 2, 3, 4, 5, 6}, 8);
  run.engine->step_decode(run.clock.now());   // asks
  run.engine->step_prefill(run.clock.now());  // computes, pushes
  run.client.cancel(id);
  run.engine->step_decode(run.clock.now());
  run.client.collect();
  EXPECT_EQ(run.client.answer(id).finish, FinishReason::kCancelled);
  EXPECT_EQ(run.engine->coordinator().state(id), RequestState::kQuarantined);
  EXPECT_GT(run.engine->decode().core().pool.counts().quarantined, 0);
  run.finish();
  run.expect_all_pages_back();
}

TEST(Handoff, DeadlinesEndARequestInEveryState) {
  int errors = 0;
  for (int after_ms = 0; after_ms < 50; ++after_ms) {
    SplitRun run(faulty_rig(FaultPlan{.delay_steps_max = 20}.with(Fault::kDelay, 0.7F), 21));
    Rng rng(22);
    Submit request{.id = run.client.new_id(), .max_tokens = 12};
    request.prompt = random_prompt(rng, 60, kVocab);
    request.deadline = run.clock.now() + std::chrono::milliseconds(after_ms);
    const RequestId id = request.id;
    ASSERT_TRUE(run.client.submit(request));
    const RequestId other = run.client.submit_prompt(random_prompt(rng, 30, kVocab), 10);
    for (int i = 0; i <= after_ms; ++i) run.step();
    run.step();
    EXPECT_TRUE(run.client.answer(id).ended()) << after_ms;
    if (run.client.answer(id).finish == FinishReason::kError) {
      ++errors;
      EXPECT_EQ(run.client.answer(id).error->code, ErrorCode::kDeadlineExceeded);
    }
    run.finish();
    EXPECT_EQ(run.client.answer(other).finish, FinishReason::kLength);
    run.expect_all_pages_back();
  }
  EXPECT_GT(errors, 20);
}

// Timers run on every turn of the loop, also with nothing to schedule: a pool that is full of a
// stuck handoff's pages is swept.
TEST(Handoff, AStuckPrefillerIsGivenUpAndTheRequestTriedAgain) {
  FakeRig rig = small_rig();
  rig.split.decode.handoff_wait_max = std::chrono::milliseconds(100);
  SplitRun run(rig);
  const RequestId id = run.client.submit_prompt({1, 2, 3, 4, 5, 6}, 8);
  for (int i = 0; i < 150; ++i) {  // the prefiller hangs
    run.clock.advance(std::chrono::milliseconds(1));
    run.engine->step_decode(run.clock.now());
  }
  run.finish();
  EXPECT_EQ(run.engine->decode().stats().asked, 2);
  EXPECT_EQ(run.client.answer(id).finish, FinishReason::kLength);
  run.expect_all_pages_back();
}

TEST(Handoff, TransfersThatNeverEndExpire) {
  FakeRig rig = faulty_rig(FaultPlan{.delay_steps_max = 1 << 30}.with(Fault::kDelay, 1.0F), 23);
  rig.split.prefill.transfer_wait_max = std::chrono::milliseconds(50);
  SplitRun run(rig);
  const RequestId id = run.client.submit_prompt({1, 2, 3, 4, 5, 6}, 8);
  for (int i = 0; i < 80; ++i) run.step();
  run.faulty->set_plan({});
  run.finish();
  EXPECT_TRUE(run.client.answer(id).ended());
  run.expect_all_pages_back();
}

TEST(Handoff, PoolsOfOneRequestServeOneAfterTheOther) {
  FakeRig rig = small_rig();
  rig.split.prefill.worker.page_count = 16;
  rig.split.decode.worker.page_count = 18;
  rig.loopback = {.open_requests_max = 2, .inbox_max = 1, .bytes_per_step = 64};
  SplitRun run(rig);
  Rng rng(24);
  for (int i = 0; i < 40; ++i) run.client.submit_prompt(random_prompt(rng, 60, kVocab), 5);
  run.finish();
  for (const auto& [id, answer] : run.client.answers()) {
    EXPECT_EQ(answer.finish, FinishReason::kLength);
  }
  run.expect_all_pages_back();
}

// A run up to the moment where the decoder waits for its end message, to put forged ones before it.
struct ForgedRun : SplitRun {
  ForgedRun() : SplitRun(small_rig()) {
    id = client.submit_prompt({1, 2, 3, 4, 5, 6}, 8);
    engine->step_decode(clock.now());
    engine->step_prefill(clock.now());
    std::vector<HandoffEnd> ends;
    engine->queues().to_decode.take(ends);
    truth = ends.at(0);
  }
  void send(HandoffEnd end) { EXPECT_TRUE(engine->queues().to_decode.try_push(end)); }

  RequestId id;
  HandoffEnd truth;
};

TEST(Handoff, StaleAndUnknownEndMessagesAreIgnored) {
  ForgedRun run;
  HandoffEnd unknown = run.truth;
  unknown.id = {999};
  HandoffEnd old = run.truth;
  old.key.epoch = 0;
  HandoffEnd future = run.truth;
  future.key.epoch = 7;
  HandoffEnd others = run.truth;
  others.key.handoff = {55};
  for (const HandoffEnd& end : {unknown, old, future, others}) run.send(end);
  run.step();
  EXPECT_EQ(run.engine->decode().stats().stale_messages, 4);
  EXPECT_EQ(run.engine->decode().stats().joined, 0);
  run.send(run.truth);
  run.send(run.truth);  // a consumed reference
  run.finish();
  EXPECT_EQ(run.engine->decode().stats().stale_messages, 5);
  EXPECT_EQ(run.engine->decode().stats().rejected, 0);
  EXPECT_EQ(run.client.answer(run.id).tokens.size(), 8U);
}

TEST(Handoff, WrongEndMessagesAreRejectedAndTheRequestComputedAnew) {
  const std::vector<std::function<void(HandoffEnd&)>> forgeries{
      [](HandoffEnd& e) { ++e.parts; },
      [](HandoffEnd& e) { ++e.prompt_tokens; },
      [](HandoffEnd& e) { e.layer_digests.pop_back(); },
      [](HandoffEnd& e) { e.layer_digests[1].low ^= 1; },
      [](HandoffEnd& e) { std::swap(e.layer_digests[0], e.layer_digests[1]); },
      [](HandoffEnd& e) { e.outcome = HandoffOutcome::kFailed; }};
  for (const auto& forge : forgeries) {
    ForgedRun run;
    HandoffEnd end = run.truth;
    forge(end);
    run.send(end);
    run.finish();
    EXPECT_EQ(run.engine->decode().stats().rejected, 1);
    EXPECT_EQ(run.engine->decode().stats().asked, 2);
    EXPECT_EQ(run.client.answer(run.id).finish, FinishReason::kLength);
    run.expect_all_pages_back();
  }
}

TEST(Handoff, APrefillerRefusesTargetsOutsideTheDecodersMemory) {
  for (const int32_t page : {-1, 64, INT32_MAX}) {
    ForgedRun run;
    auto submit = std::make_shared<Submit>();
    submit->id = {777};
    submit->prompt = {1, 2, 3};
    submit->max_tokens = 2;
    PrefillMessage order = PrefillOrder{
        .submit = submit,
        .target = HandoffTarget{.key = {.handoff = {88}, .epoch = 1}, .pages = {PageId{page}}}};
    ASSERT_TRUE(run.engine->queues().to_prefill.try_push(order));
    run.engine->step_prefill(run.clock.now());
    run.engine->step_prefill(run.clock.now());
    std::vector<HandoffEnd> ends;
    run.engine->queues().to_decode.take(ends);
    ASSERT_EQ(ends.size(), 1U);
    // The book doesn't know the request, so it "finished" where it would have been pushed; else it
    // fails. Either way nothing was written and nothing joins.
    EXPECT_NE(ends[0].outcome, HandoffOutcome::kComplete);
    run.send(run.truth);
    run.finish();
    EXPECT_EQ(run.client.answer(run.id).tokens.size(), 8U);
    run.expect_all_pages_back();
  }
}

TEST(Handoff, AnOldCancelDoesNotTouchANewerEpoch) {
  ForgedRun run;
  HandoffEnd failed = run.truth;
  failed.outcome = HandoffOutcome::kFailed;
  run.send(failed);
  run.engine->step_decode(run.clock.now());  // asks again with epoch 2
  PrefillMessage cancel = PrefillCancel{.id = run.id, .key = run.truth.key};
  ASSERT_TRUE(run.engine->queues().to_prefill.try_push(cancel));
  run.finish();
  EXPECT_EQ(run.engine->decode().stats().rejected, 1);
  EXPECT_EQ(run.client.answer(run.id).tokens.size(), 8U);
}

}  // namespace
}  // namespace tandem::engine
