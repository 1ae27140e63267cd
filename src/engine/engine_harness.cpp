// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_harness.h"

#include <utility>

namespace tandem::engine {

std::vector<int32_t> Answer::ids() const {
  std::vector<int32_t> out;
  out.reserve(tokens.size());
  for (const SampledToken& token : tokens) out.push_back(token.token);
  return out;
}

bool Client::submit(Submit request) {
  Answer answer{.request = request};
  if (!link_.try_submit(request)) return false;
  answers_.emplace(answer.request.id, std::move(answer));
  return true;
}

RequestId Client::submit_prompt(std::vector<int32_t> prompt, int32_t max_tokens, uint64_t seed) {
  Submit request{.id = new_id(), .prompt = std::move(prompt), .max_tokens = max_tokens};
  request.sampling.seed = seed;
  const RequestId id = request.id;
  EXPECT_TRUE(submit(std::move(request)));
  return id;
}

void Client::collect() {
  events_.clear();
  link_.take_events(events_);
  for (const TokenEvent& event : events_) {
    const auto it = answers_.find(event.id);
    ASSERT_NE(it, answers_.end()) << "event of unknown request " << event.id.value;
    check(event, it->second);
  }
}

void Client::check(const TokenEvent& event, Answer& answer) {
  ASSERT_FALSE(answer.ended()) << "event after the end of request " << event.id.value;
  const bool first = answer.events++ == 0;
  EXPECT_TRUE(first || !event.timings.has_value());
  EXPECT_TRUE(first || event.prompt_logprobs.empty());
  EXPECT_EQ(event.error.has_value(), event.finish == FinishReason::kError);
  if (first) {
    answer.cached_tokens = event.prompt_cached_tokens;
    answer.timings = event.timings;
    answer.prompt_logprobs = event.prompt_logprobs;
  }
  if (event.has_token) {
    if (fake_) {
      std::vector<int32_t> tokens = answer.request.prompt;
      for (const SampledToken& t : answer.tokens) tokens.push_back(t.token);
      const int32_t truth = fake_next(*fake_, tokens, answer.request.sampling);
      if (count_wrong_) {
        wrong_ += truth != event.token.token;
      } else {
        EXPECT_EQ(event.token.token, truth)
            << "request " << event.id.value << " output " << answer.tokens.size();
      }
    }
    answer.tokens.push_back(event.token);
  }
  answer.finish = event.finish;
  answer.error = event.error;
  ended_ += answer.ended();
  const auto outputs = static_cast<int32_t>(answer.tokens.size());
  EXPECT_LE(outputs, answer.request.max_tokens);
  if (event.finish == FinishReason::kLength) {
    EXPECT_EQ(outputs, answer.request.max_tokens);
  }
}

FakeRig small_rig() {
  FakeRig rig;
  WorkerSettings worker;
  worker.sched = {.rows_max = 48,
                  .chunk_rows_max = 16,
                  .sequences_max = 16,
                  .waiting_max = 4096,
                  .context_tokens_max = 128};
  worker.page_count = 64;
  worker.logit_rows_max = 8;
  rig.whole.worker = worker;
  rig.split.prefill.worker = worker;
  rig.split.decode.worker = worker;
  rig.split.limits = {.model_name = "fake", .queue_requests_max = 4096};
  rig.whole.limits = rig.split.limits;
  return rig;
}

SplitRun::SplitRun(const FakeRig& rig) : link(rig.submits_max), client(link, rig.fake) {
  SplitTransports transports = make_loopback_transports(rig.loopback);
  if (rig.faults) {
    auto wrapped = std::make_unique<transfer::FaultyTransport>(std::move(transports.prefill),
                                                               *rig.faults, rig.fault_seed);
    faulty = wrapped.get();
    transports.prefill = std::move(wrapped);
  }
  auto made = SplitEngine::create(rig.split, {.prefill = make_fake_compute(rig.fake),
                                              .decode = make_fake_compute(rig.fake),
                                              .transports = std::move(transports),
                                              .link = link,
                                              .clock = clock});
  engine = std::move(made).value();
}

void SplitRun::step() {
  clock.advance(std::chrono::milliseconds(1));
  engine->step(clock.now());
  engine->check_invariants();
  client.collect();
}

void SplitRun::finish(int steps_max) {
  for (int i = 0; i < steps_max && (client.open() > 0 || !engine->idle()); ++i) step();
  // The workers may still have to exchange their last messages.
  for (int i = 0; i < 50; ++i) step();
  EXPECT_EQ(client.open(), 0U);
  EXPECT_TRUE(engine->idle());
  EXPECT_TRUE(engine->prefill().idle());
  EXPECT_TRUE(engine->decode().idle());
}

namespace {

void expect_at_rest(const kv::PageCounts& pages) {
  EXPECT_EQ(pages.free + pages.cached, pages.total);
  EXPECT_EQ(pages.referenced, 0);
  EXPECT_EQ(pages.quarantined, 0);
}

}  // namespace

void SplitRun::expect_all_pages_back() const {
  expect_at_rest(engine->prefill().core().pool.counts());
  expect_at_rest(engine->decode().core().pool.counts());
  EXPECT_EQ(engine->decode().arrivals().open(), 0U);
}

WholeRun::WholeRun(const FakeRig& rig) : link(rig.submits_max), client(link, rig.fake) {
  engine = WholeEngine::create(
               rig.whole, {.compute = make_fake_compute(rig.fake), .link = link, .clock = clock})
               .value();
}

void WholeRun::step() {
  clock.advance(std::chrono::milliseconds(1));
  engine->step(clock.now());
  engine->check_invariants();
  client.collect();
}

void WholeRun::finish(int steps_max) {
  for (int i = 0; i < steps_max && (client.open() > 0 || !engine->idle()); ++i) step();
  EXPECT_EQ(client.open(), 0U);
  EXPECT_TRUE(engine->idle());
}

void WholeRun::expect_all_pages_back() const {
  expect_at_rest(engine->core().pool.counts());
}

std::vector<int32_t> random_prompt(Rng& rng, int64_t tokens, int32_t vocab) {
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (int32_t& token : prompt)
    token = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
  return prompt;
}

}  // namespace tandem::engine
