// SPDX-License-Identifier: Apache-2.0
// The same requests through differently built engines around a real model, for the differential
// tests: what must not change a token or a bit of a logprob.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_harness.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/weights.h"

namespace tandem::engine {

// How an engine is built and how the requests come to it.
struct Variant {
  std::string name;
  bool split = true;
  bool threads = false;  // split only: one for each worker
  bool alone = false;    // one request after the other, else all at once
  bool prefix_cache = true;
  bool cancels = false;  // every third request is cancelled after some steps
  int32_t page_tokens = 16;
  int32_t chunk_rows_max = 64;
  int32_t rows_max = 128;
  int32_t logit_rows_max = 16;
};

struct TestModel {
  model::ModelConfig config;
  std::unique_ptr<model::Model> model;
};
[[nodiscard]] TestModel tiny_model();  // random weights, MoE, 2 layers

// Greedy and seeded requests with every sampling option, short and long prompts, shared prefixes,
// several choices, logprobs and prompt logprobs.
[[nodiscard]] std::vector<Submit> differential_requests(const model::ModelConfig& config,
                                                        int32_t prompt_tokens_max,
                                                        int32_t max_tokens, uint64_t seed);

// Answers by request id.
[[nodiscard]] std::map<RequestId, Answer> serve_all(const model::Model& model,
                                                    const std::vector<Submit>& requests,
                                                    const Variant& variant);

// Equal tokens, bitwise equal logprobs, same end. A cancelled answer is a prefix of the other.
void expect_same(const std::map<RequestId, Answer>& truth, const std::map<RequestId, Answer>& seen);

}  // namespace tandem::engine
