// SPDX-License-Identifier: Apache-2.0
// What a request asks of the sampler and what it gets back. serve/ fills it from checked JSON,
// model/sampler draws by it, engine/ carries it. Values are already in range: serve/ is the gate
// for requests, the sampler CHECKs.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tandem {

struct SamplingParams {
  float temperature = 1.0F;                           // 0 = greedy
  int32_t top_k = 0;                                  // 0 = off
  float top_p = 1.0F;                                 // (0, 1]
  float min_p = 0.0F;                                 // [0, 1]
  float repetition_penalty = 1.0F;                    // > 0, over prompt and output
  float presence_penalty = 0.0F;                      // over output
  float frequency_penalty = 0.0F;                     // over output
  std::vector<std::pair<int32_t, float>> logit_bias;  // ids in [0, V), unique
  uint64_t seed = 0;
  uint32_t choice_idx = 0;  // which of the n choices of one request: own stream of random numbers
  int32_t logprobs = -1;    // -1 none; k >= 0: the drawn token's and those of the k best
  int32_t min_tokens = 0;   // stop ids can't be drawn before so many output tokens
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob =
      0.0F;  // of the model's distribution before temperature, penalties, bias and truncation
};

struct SampledToken {
  int32_t token = 0;
  float logprob = 0.0F;
  std::vector<TokenLogprob> top;  // best first, ties by lower id; empty unless asked for
};

}  // namespace tandem
