// SPDX-License-Identifier: Apache-2.0
#include "engine/differential_harness_test.h"

#include <atomic>
#include <bit>
#include <thread>
#include <utility>

#include "core/exec.h"
#include "engine/model_compute.h"

namespace tandem::engine {
namespace {

constexpr int32_t kContextMax = 1024;

WorkerSettings worker_settings(const Variant& v) {
  WorkerSettings worker;
  worker.sched = {.rows_max = v.rows_max,
                  .chunk_rows_max = v.chunk_rows_max,
                  .sequences_max = 24,
                  .waiting_max = 1000,
                  .context_tokens_max = kContextMax,
                  .prefix_cache = v.prefix_cache};
  worker.page_count = 6000 / v.page_tokens;
  worker.logit_rows_max = v.logit_rows_max;
  return worker;
}

// A model's Compute with a scratch of its own.
struct OwnedCompute {
  OwnedCompute(const model::Model& model, const Variant& v)
      : scratch(model.scratch_bytes({.batch_rows_max = v.rows_max,
                                     .logit_rows_max = v.logit_rows_max,
                                     .context_tokens_max = kContextMax})) {
    exec.scratch = &scratch;
    compute = make_model_compute(model, exec, {.page_tokens = v.page_tokens});
  }
  Scratch scratch;
  Exec exec;
  Compute compute;
};

EngineLimits limits() {
  return {.model_name = "test", .queue_requests_max = 1000};
}

// Submits as the variant says and calls `turn` until all have ended.
template <typename Turn>
void drive(Client& client, const std::vector<Submit>& requests, const Variant& v, Turn turn) {
  const auto run_out = [&] {
    while (client.open() > 0 && !testing::Test::HasFatalFailure()) turn();
  };
  for (const Submit& request : requests) {
    ASSERT_TRUE(client.submit(request));
    if (v.alone) run_out();
  }
  if (v.cancels) {
    for (int i = 0; i < 12; ++i) turn();
    for (size_t i = 0; i < requests.size(); i += 3) client.cancel(requests[i].id);
  }
  run_out();
}

std::map<RequestId, Answer> serve_whole(const model::Model& model,
                                        const std::vector<Submit>& requests, const Variant& v) {
  const OwnedCompute compute(model, v);
  const SteadyClock clock;
  Link link(1000);
  auto engine = WholeEngine::create({.limits = limits(), .worker = worker_settings(v)},
                                    {.compute = compute.compute, .link = link, .clock = clock});
  Client client(link);
  drive(client, requests, v, [&] {
    engine.value()->step(clock.now());
    client.collect();
  });
  return client.answers();
}

std::map<RequestId, Answer> serve_split(const model::Model& model,
                                        const std::vector<Submit>& requests, const Variant& v) {
  const OwnedCompute prefill(model, v);
  const OwnedCompute decode(model, v);
  const SteadyClock clock;
  Link link(1000);
  auto made = SplitEngine::create({.limits = limits(),
                                   .prefill = {.worker = worker_settings(v)},
                                   .decode = {.worker = worker_settings(v)}},
                                  {.prefill = prefill.compute,
                                   .decode = decode.compute,
                                   .transports = make_loopback_transports(),
                                   .link = link,
                                   .clock = clock});
  SplitEngine& engine = *made.value();
  Client client(link);
  if (!v.threads) {
    drive(client, requests, v, [&] {
      engine.step(clock.now());
      client.collect();
    });
    return client.answers();
  }
  std::atomic<bool> stop{false};
  std::thread prefill_thread([&] {
    while (!stop.load()) {
      if (!engine.step_prefill(clock.now())) engine.wait_prefill(std::chrono::milliseconds(1));
    }
  });
  std::thread decode_thread([&] {
    while (!stop.load()) {
      if (!engine.step_decode(clock.now())) engine.wait_decode(std::chrono::milliseconds(1));
    }
  });
  drive(client, requests, v, [&] {
    client.collect();
    std::this_thread::yield();
  });
  stop = true;
  engine.wake();
  prefill_thread.join();
  decode_thread.join();
  return client.answers();
}

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void expect_same_token(const SampledToken& a, const SampledToken& b) {
  EXPECT_EQ(a.token, b.token);
  EXPECT_TRUE(same_bits(a.logprob, b.logprob)) << a.logprob << " and " << b.logprob;
  ASSERT_EQ(a.top.size(), b.top.size());
  for (size_t i = 0; i < a.top.size(); ++i) {
    EXPECT_EQ(a.top[i].token, b.top[i].token);
    EXPECT_TRUE(same_bits(a.top[i].logprob, b.top[i].logprob));
  }
}

}  // namespace

TestModel tiny_model() {
  model::ModelConfig config;
  config.hidden = 64;
  config.layers = 2;
  config.q_heads = 4;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.experts = 8;
  config.experts_per_token = 2;
  config.moe_intermediate = 48;
  config.intermediate = 96;
  config.layer_is_moe = {true, true};
  config.vocab = 160;
  config.max_position = kContextMax;
  Exec exec;
  const model::Weights weights = model::random_weights(config, 7);
  return {config, std::make_unique<model::Model>(model::Model::create(config, weights, exec))};
}

std::vector<Submit> differential_requests(const model::ModelConfig& config,
                                          int32_t prompt_tokens_max, int32_t max_tokens,
                                          uint64_t seed) {
  Rng rng(seed, 0xd1ff);
  const std::vector<int32_t> prefix = random_prompt(rng, prompt_tokens_max / 2, config.vocab);
  std::vector<Submit> requests;
  const auto add = [&](int64_t tokens, bool shared, auto change) {
    Submit r{.id = {requests.size() + 1}, .max_tokens = max_tokens};
    if (shared) r.prompt = prefix;
    const auto own = random_prompt(rng, tokens, config.vocab);
    r.prompt.insert(r.prompt.end(), own.begin(), own.end());
    r.sampling.seed = 100 + requests.size();
    r.sampling.logprobs = 3;
    change(r);
    requests.push_back(std::move(r));
  };
  const auto greedy = [](Submit& r) { r.sampling.temperature = 0.0F; };
  add(1, false, greedy);
  add(prompt_tokens_max, false, greedy);
  add(prompt_tokens_max - 1, false, [](Submit&) {});
  for (uint32_t choice = 0; choice < 3; ++choice) {  // the n choices of one prompt
    add(0, true, [choice](Submit& r) {
      r.sampling.seed = 5;
      r.sampling.choice_idx = choice;
    });
  }
  add(9, true, greedy);
  add(33, true, [](Submit& r) {
    r.sampling.temperature = 0.7F;
    r.sampling.top_k = 20;
    r.sampling.top_p = 0.9F;
    r.sampling.min_p = 0.02F;
  });
  add(17, true, [](Submit& r) {
    r.sampling.repetition_penalty = 1.3F;
    r.sampling.presence_penalty = 0.5F;
    r.sampling.frequency_penalty = 0.4F;
  });
  add(5, true, [](Submit& r) { r.sampling.logit_bias = {{3, 4.0F}, {7, -100.0F}, {11, 2.5F}}; });
  add(40, true, [](Submit& r) { r.prompt_logprobs = 2; });
  add(12, false, [](Submit& r) {
    r.prompt_logprobs = 0;
    r.max_tokens = 0;
  });
  add(64, false, [](Submit& r) { r.max_tokens = 1; });
  add(20, true, [](Submit& r) {
    r.stop_ids = {1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13};
    r.sampling.min_tokens = 4;
  });
  for (const int64_t tokens : {15, 16, 17, 31, 32, 63, 65}) add(tokens, false, [](Submit&) {});
  return requests;
}

std::map<RequestId, Answer> serve_all(const model::Model& model,
                                      const std::vector<Submit>& requests, const Variant& variant) {
  return variant.split ? serve_split(model, requests, variant)
                       : serve_whole(model, requests, variant);
}

void expect_same(const std::map<RequestId, Answer>& truth,
                 const std::map<RequestId, Answer>& seen) {
  ASSERT_EQ(truth.size(), seen.size());
  for (const auto& [id, expected] : truth) {
    SCOPED_TRACE("request " + std::to_string(id.value));
    const Answer& answer = seen.at(id);
    const bool cancelled = answer.finish == FinishReason::kCancelled;
    if (!cancelled) {
      EXPECT_EQ(answer.finish, expected.finish);
      ASSERT_EQ(answer.tokens.size(), expected.tokens.size());
    }
    ASSERT_LE(answer.tokens.size(), expected.tokens.size());
    for (size_t i = 0; i < answer.tokens.size(); ++i) {
      SCOPED_TRACE("output " + std::to_string(i));
      expect_same_token(expected.tokens[i], answer.tokens[i]);
    }
    if (cancelled && answer.events == 1) continue;
    ASSERT_EQ(answer.prompt_logprobs.size(), expected.prompt_logprobs.size());
    for (size_t i = 0; i < answer.prompt_logprobs.size(); ++i) {
      SCOPED_TRACE("prompt token " + std::to_string(i + 1));
      expect_same_token(expected.prompt_logprobs[i], answer.prompt_logprobs[i]);
    }
  }
}

}  // namespace tandem::engine
