// SPDX-License-Identifier: Apache-2.0
// Split and whole engines around the fake model: what each promise of engine/api.h looks like.
#include "engine/split_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/rng.h"
#include "engine/engine_harness.h"

namespace tandem::engine {
namespace {

constexpr int32_t kVocab = 4096;

TEST(SplitEngine, StreamsTheModelsTokens) {
  SplitRun run(small_rig());
  Rng rng(1);
  std::vector<RequestId> ids;
  for (const int64_t tokens : {1, 3, 4, 5, 15, 16, 17, 33, 64, 100}) {
    ids.push_back(run.client.submit_prompt(random_prompt(rng, tokens, kVocab), 12, 7));
  }
  run.finish();
  for (const RequestId id : ids) {
    EXPECT_EQ(run.client.answer(id).finish, FinishReason::kLength);
    EXPECT_EQ(run.client.answer(id).tokens.size(), 12U);
  }
  run.expect_all_pages_back();
  EXPECT_EQ(run.engine->decode().stats().joined, 10);
  EXPECT_EQ(run.engine->decode().stats().rejected, 0);
}

TEST(WholeEngine, StreamsTheModelsTokens) {
  WholeRun run(small_rig());
  Rng rng(1);
  for (const int64_t tokens : {1, 3, 4, 5, 15, 16, 17, 33, 64, 100}) {
    run.client.submit_prompt(random_prompt(rng, tokens, kVocab), 12, 7);
  }
  run.finish();
  for (const auto& [id, answer] : run.client.answers()) {
    EXPECT_EQ(answer.finish, FinishReason::kLength);
  }
  run.expect_all_pages_back();
}

TEST(SplitEngine, TheFirstTokenDoesNotWaitForTheHandoff) {
  FakeRig rig = small_rig();
  rig.faults = transfer::FaultPlan{.delay_steps_max = 1000}.with(transfer::Fault::kDelay, 1.0F);
  SplitRun run(rig);
  const RequestId id = run.client.submit_prompt({1, 2, 3, 4, 5}, 4);
  run.step();
  run.step();
  EXPECT_EQ(run.client.answer(id).tokens.size(), 1U);
  EXPECT_EQ(run.engine->coordinator().state(id), RequestState::kHandoff);
  run.finish();
  EXPECT_EQ(run.client.answer(id).tokens.size(), 4U);
}

TEST(SplitEngine, TimingsAddUpToTheFirstToken) {
  SplitRun run(small_rig());
  Submit request{.id = run.client.new_id(), .max_tokens = 2};
  Rng rng(2);
  request.prompt = random_prompt(rng, 60, kVocab);  // four chunks of 16
  request.submitted = run.clock.now();
  const RequestId id = request.id;
  ASSERT_TRUE(run.client.submit(request));
  TimePoint first{};
  while (run.client.answer(id).tokens.empty()) {
    run.step();
    first = run.clock.now();
  }
  const EngineTimings& t = *run.client.answer(id).timings;
  EXPECT_EQ(t.queue + t.prefill + t.sample, first - request.submitted);
  EXPECT_EQ(t.queue, std::chrono::milliseconds(1));
  EXPECT_EQ(t.prefill, std::chrono::milliseconds(3));
  run.finish();
}

TEST(SplitEngine, WhatTheDecoderHoldsIsNotSentAgain) {
  SplitRun run(small_rig());
  Rng rng(3);
  std::vector<int32_t> prompt = random_prompt(rng, 41, kVocab);
  run.client.submit_prompt(prompt, 6);
  run.finish();
  const int64_t cold = run.engine->prefill().bytes_pushed();
  prompt.back() ^= 1;
  const RequestId id = run.client.submit_prompt(prompt, 6);
  run.finish();
  EXPECT_EQ(run.client.answer(id).cached_tokens, 40);
  EXPECT_EQ(run.engine->prefill().bytes_pushed() - cold, cold / 11);  // one page of eleven
  run.expect_all_pages_back();
}

TEST(SplitEngine, SaltsShareNothing) {
  SplitRun run(small_rig());
  Rng rng(4);
  const std::vector<int32_t> prompt = random_prompt(rng, 41, kVocab);
  for (const uint64_t salt : {1, 2}) {
    Submit request{.id = run.client.new_id(), .prompt = prompt, .max_tokens = 2};
    request.cache_salt = salt;
    const RequestId id = request.id;
    ASSERT_TRUE(run.client.submit(request));
    run.finish();
    EXPECT_EQ(run.client.answer(id).cached_tokens, 0);
  }
}

TEST(SplitEngine, StopIdsEndTheAnswerWithTheTokenInTheEvent) {
  const FakeRig rig = small_rig();
  for (const size_t stop_after : {1U, 2U, 5U}) {
    SplitRun run(rig);
    std::vector<int32_t> tokens{9, 8, 7, 6, 5};
    Submit request{.id = run.client.new_id(), .prompt = tokens, .max_tokens = 50};
    for (size_t i = 0; i < stop_after; ++i) {
      tokens.push_back(fake_next(rig.fake, tokens, request.sampling));
    }
    request.stop_ids = {tokens.back()};
    const RequestId id = request.id;
    ASSERT_TRUE(run.client.submit(request));
    run.finish();
    EXPECT_EQ(run.client.answer(id).finish, FinishReason::kStop);
    EXPECT_EQ(run.client.answer(id).tokens.size(), stop_after);
    run.expect_all_pages_back();
  }
}

TEST(SplitEngine, OneTokenNeedsNoDecoder) {
  SplitRun run(small_rig());
  const RequestId one = run.client.submit_prompt({1, 2, 3}, 1);
  Submit none{.id = run.client.new_id(), .prompt = {4, 5, 6, 7, 8, 9}, .max_tokens = 0};
  none.prompt_logprobs = 2;
  ASSERT_TRUE(run.client.submit(none));
  run.finish();
  EXPECT_EQ(run.client.answer(one).finish, FinishReason::kLength);
  EXPECT_EQ(run.client.answer(none.id).finish, FinishReason::kLength);
  EXPECT_TRUE(run.client.answer(none.id).tokens.empty());
  EXPECT_EQ(run.client.answer(none.id).prompt_logprobs.size(), 5U);
  EXPECT_EQ(run.engine->decode().stats().asked, 0);
  run.expect_all_pages_back();
}

TEST(SplitEngine, PromptLogprobsBypassTheCacheAndEqualTheWholeEngines) {
  const FakeRig rig = small_rig();
  SplitRun split(rig);
  WholeRun whole(rig);
  Rng rng(5);
  const std::vector<int32_t> prompt = random_prompt(rng, 50, kVocab);
  const auto ask = [&](auto& run) {
    run.client.submit_prompt(prompt, 3);
    run.finish();
    Submit request{.id = run.client.new_id(), .prompt = prompt, .max_tokens = 3};
    request.prompt_logprobs = 1;
    EXPECT_TRUE(run.client.submit(request));
    run.finish();
    return run.client.answer(request.id);
  };
  const Answer a = ask(split);
  const Answer b = ask(whole);
  ASSERT_EQ(a.prompt_logprobs.size(), 49U);
  ASSERT_EQ(b.prompt_logprobs.size(), 49U);
  for (size_t i = 0; i < 49; ++i) {
    EXPECT_EQ(a.prompt_logprobs[i].token, prompt[i + 1]);
    EXPECT_EQ(a.prompt_logprobs[i].logprob, b.prompt_logprobs[i].logprob);
  }
  EXPECT_EQ(a.cached_tokens, 0);
}

// A row that is not finite ends its own request only, and nothing of it is ever served again.
TEST(SplitEngine, NanInThePromptFailsThatRequestAlone) {
  FakeRig rig = small_rig();
  rig.fake.nan_token = 77;
  SplitRun run(rig);
  Rng rng(6);
  std::vector<int32_t> prompt = random_prompt(rng, 40, kVocab);
  for (int32_t& token : prompt) token += token == 77;
  std::vector<int32_t> poisoned = prompt;
  poisoned[15] = 77;  // the last row of the first chunk
  const RequestId bad = run.client.submit_prompt(poisoned, 5);
  const RequestId good = run.client.submit_prompt(random_prompt(rng, 40, 70), 5);
  run.finish();
  EXPECT_EQ(run.client.answer(bad).finish, FinishReason::kError);
  EXPECT_EQ(run.client.answer(bad).error->code, ErrorCode::kInternal);
  EXPECT_EQ(run.client.answer(good).finish, FinishReason::kLength);
  poisoned.back() ^= 1;
  const RequestId again = run.client.submit_prompt(poisoned, 5);
  run.finish();
  EXPECT_EQ(run.client.answer(again).cached_tokens, 0);
  run.expect_all_pages_back();
}

TEST(SplitEngine, NanInDecodeFailsThatRequestAlone) {
  FakeRig rig = small_rig();
  std::vector<int32_t> tokens{1, 2, 3};
  const SamplingParams params;
  for (int i = 0; i < 3; ++i) tokens.push_back(fake_next(rig.fake, tokens, params));
  rig.fake.nan_token = tokens.back();
  SplitRun run(rig);
  const RequestId bad = run.client.submit_prompt({1, 2, 3}, 10);
  const RequestId good = run.client.submit_prompt({4, 5, 6}, 10);
  run.finish();
  EXPECT_EQ(run.client.answer(bad).finish, FinishReason::kError);
  EXPECT_EQ(run.client.answer(bad).tokens.size(), 3U);
  EXPECT_EQ(run.client.answer(good).finish, FinishReason::kLength);
  run.expect_all_pages_back();
}

template <typename Run>
ErrorCode refusal_of(Run& run, Submit request) {
  request.id = run.client.new_id();
  EXPECT_TRUE(run.client.submit(request));
  run.step();
  const Answer& answer = run.client.answer(request.id);
  EXPECT_EQ(answer.finish, FinishReason::kError);  // at once
  return answer.error ? answer.error->code : ErrorCode::kInternal;
}

template <typename Run>
void check_refusals() {
  FakeRig rig = small_rig();
  rig.split.prefill.worker.page_count = 20;  // 80 tokens, less than the context
  rig.whole.worker.page_count = 20;
  Run run(rig);
  const Submit fine{.prompt = {1, 2, 3}, .max_tokens = 4};
  const auto with = [&](auto change) {
    Submit request = fine;
    change(request);
    return refusal_of(run, request);
  };
  const auto bad = ErrorCode::kInvalidArgument;
  EXPECT_EQ(with([](Submit& r) { r.prompt.clear(); }), bad);
  EXPECT_EQ(with([](Submit& r) { r.prompt[1] = -1; }), bad);
  EXPECT_EQ(with([](Submit& r) { r.prompt[1] = kVocab; }), bad);
  EXPECT_EQ(with([](Submit& r) { r.stop_ids = {kVocab}; }), bad);
  EXPECT_EQ(with([](Submit& r) { r.sampling.logit_bias = {{-1, 1.0F}}; }), bad);
  EXPECT_EQ(with([](Submit& r) { r.max_tokens = 0; }), bad);
  EXPECT_EQ(with([](Submit& r) { r.max_tokens = INT32_MAX; }), bad);
  EXPECT_EQ(with([](Submit& r) { r.prompt.assign(128, 1); }), bad);
  EXPECT_EQ(with([](Submit& r) { r.prompt.assign(81, 1); }), bad);  // would never fit the pool
  run.engine->drain();
  EXPECT_EQ(with([](Submit&) {}), ErrorCode::kUnavailable);
  run.finish();
}

TEST(SplitEngine, RefusesAtOnceWhatItCanNeverServe) {
  check_refusals<SplitRun>();
}
TEST(WholeEngine, RefusesAtOnceWhatItCanNeverServe) {
  check_refusals<WholeRun>();
}

TEST(SplitEngine, AFullQueueIsRefusedAndDrainFinishesTheRest) {
  FakeRig rig = small_rig();
  rig.split.limits.queue_requests_max = 8;
  SplitRun run(rig);
  Rng rng(7);
  for (int i = 0; i < 12; ++i) run.client.submit_prompt(random_prompt(rng, 20, kVocab), 8);
  run.step();
  int refused = 0;
  for (const auto& [id, answer] : run.client.answers()) {
    if (answer.finish != FinishReason::kError) continue;
    ++refused;
    EXPECT_EQ(answer.error->code, ErrorCode::kResourceExhausted);
  }
  EXPECT_EQ(refused, 4);
  run.engine->drain();
  run.finish();
  EXPECT_FALSE(run.link.status().accepting);
  int finished = 0;
  for (const auto& [id, answer] : run.client.answers()) {
    finished += answer.finish == FinishReason::kLength;
  }
  EXPECT_EQ(finished, 8);
}

TEST(SplitEngine, PublishesWhatItDid) {
  SplitRun run(small_rig());
  Rng rng(8);
  for (int i = 0; i < 5; ++i) run.client.submit_prompt(random_prompt(rng, 30, kVocab), 6);
  run.finish();
  const EngineStatus status = run.link.status();
  ASSERT_EQ(status.workers.size(), 2U);
  EXPECT_EQ(status.workers[0].role, "prefill");
  EXPECT_EQ(status.workers[0].tokens_computed, 5 * 30);
  EXPECT_EQ(status.workers[1].role, "decode");
  EXPECT_EQ(status.workers[1].tokens_computed, 5 * 5);
  EXPECT_EQ(status.handoffs, 5);
  EXPECT_GT(status.handoff_bytes, 0);
  EXPECT_EQ(status.handoff_rejects, 0);
  EXPECT_TRUE(status.accepting);
  EXPECT_GT(status.steps, 0);
}

TEST(SplitEngine, RefusesADecoderThatIsLaidOutOtherwise) {
  const FakeRig rig = small_rig();
  const std::vector<std::pair<std::string, std::function<void(FakeSettings&)>>> cases{
      {"layers", [](FakeSettings& s) { ++s.layers; }},
      {"kv_heads", [](FakeSettings& s) { ++s.kv_heads; }},
      {"head_dim", [](FakeSettings& s) { s.head_dim *= 2; }},
      {"page_tokens", [](FakeSettings& s) { s.page_tokens *= 2; }},
      {"vocab", [](FakeSettings& s) { ++s.vocab; }}};
  for (const auto& [name, change] : cases) {
    FakeSettings other = rig.fake;
    change(other);
    ManualClock clock;
    Link link(10);
    const auto made = SplitEngine::create(rig.split, {.prefill = make_fake_compute(rig.fake),
                                                      .decode = make_fake_compute(other),
                                                      .transports = make_loopback_transports(),
                                                      .link = link,
                                                      .clock = clock});
    ASSERT_FALSE(made.ok()) << name;
    EXPECT_EQ(made.error().param, name);
  }
}

// The same engine with one thread per worker and a third at the front: every token is right, every
// request ends.
TEST(SplitEngine, TwoThreadsGiveTheSameTokens) {
  FakeRig rig = small_rig();
  SplitRun run(rig);  // its clock isn't used
  const SteadyClock clock;
  Link link(64);
  auto made = SplitEngine::create(rig.split, {.prefill = make_fake_compute(rig.fake),
                                              .decode = make_fake_compute(rig.fake),
                                              .transports = make_loopback_transports(),
                                              .link = link,
                                              .clock = clock});
  SplitEngine& engine = *made.value();
  std::atomic<bool> stop{false};
  const auto loop = [&](auto step, auto wait) {
    while (!stop.load()) {
      if (!step(clock.now())) wait(std::chrono::milliseconds(1));
    }
  };
  std::thread prefill([&] {
    loop([&](TimePoint t) { return engine.step_prefill(t); },
         [&](Duration d) { engine.wait_prefill(d); });
  });
  std::thread decode([&] {
    loop([&](TimePoint t) { return engine.step_decode(t); },
         [&](Duration d) { engine.wait_decode(d); });
  });
  Client client(link, rig.fake);
  Rng rng(9);
  int submitted = 0;
  while (submitted < 600 || client.open() > 0) {
    if (submitted < 600) {
      Submit request{.id = client.new_id(), .max_tokens = static_cast<int32_t>(rng.between(1, 20))};
      request.prompt = random_prompt(rng, rng.between(1, 60), rng.below(2) == 0 ? 2 : kVocab);
      request.sampling.seed = rng.next_u64();
      if (client.submit(request)) ++submitted;
      if (rng.below(10) == 0) client.cancel({rng.below(request.id.value + 1)});
    }
    client.collect();
  }
  while (!engine.idle()) std::this_thread::yield();
  stop = true;
  engine.wake();
  prefill.join();
  decode.join();
  engine.check_invariants();
  const auto decode_pages = engine.decode().core().pool.counts();
  EXPECT_EQ(decode_pages.referenced + decode_pages.quarantined, 0);
}

}  // namespace
}  // namespace tandem::engine
