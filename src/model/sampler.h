// SPDX-License-Identifier: Apache-2.0
// Draws a token: a pure function of (params, position, logits, earlier tokens). engine/ calls it
// for each row of logits that ends a step; whole, split, alone or batched give the same token for
// the same seed.
//   order   logit_bias; repetition, frequency, presence penalty; stop-id mask (min_tokens);
//           vocabulary mask; temperature; top_k; top_p; min_p; draw
//   ties    the lower id first, everywhere. top_k and top_p rank by the logit before temperature,
//           which does not change the order but can make two logits equal
//   top_p   the smallest set of likeliest tokens, of those that top_k left, whose share reaches it
//   min_p   tokens with at least min_p times the likeliest token's probability
//   random  Philox4x32-10, key = seed, counter = (position, choice_idx, 0, 0); words 0 and 1 make
//           one uniform double; inverse of the cumulated weights in order of id
//   math    logits and weights exp((z - max) / T) in f32, all sums in f64 in order of id, so the
//   same
//           input gives the same token on every machine
//   errors  a row with NaN or +infinity, or without one finite logit left, gives kInternal; the
//           caller fails that request only
// Source: Keskar et al. 2019 (repetition penalty); OpenAI API reference (presence, frequency,
// logit_bias); Holtzman et al. 2020 (top-p); Nguyen et al. 2024 (min-p).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "core/sampling.h"

namespace tandem::model {

struct SampleInput {
  std::span<const float> logits;      // [V]
  int32_t vocab_sampled = 0;          // ids at and above it are never drawn
  int32_t position = 0;               // of the token to draw: prompt length + outputs so far
  std::span<const int32_t> prompt;    // for the repetition penalty
  std::span<const int32_t> output;    // drawn so far
  std::span<const int32_t> stop_ids;  // masked while output is shorter than min_tokens
};

// Reused working memory of one worker for rows of up to `vocab` logits, about 20 bytes a logit.
// Nothing in it survives a call, so results do not depend on what it was used for before.
struct SamplerScratch;
struct SamplerScratchDelete {
  void operator()(SamplerScratch* p) const;
};
using SamplerScratchPtr = std::unique_ptr<SamplerScratch, SamplerScratchDelete>;
SamplerScratchPtr make_sampler_scratch(int32_t vocab);

// `logprob` and `top` are filled only where params.logprobs >= 0; the distribution they are of is
// over the ids below vocab_sampled.
[[nodiscard]] Result<SampledToken> sample(const SampleInput& input, const SamplingParams& params,
                                          SamplerScratch& scratch);

// log softmax entry of `token` and of the k best, for prompt logprobs. `token` may be any id of the
// row; one at or above vocab_sampled is scored against the same sum.
[[nodiscard]] Result<SampledToken> score(std::span<const float> logits, int32_t vocab_sampled,
                                         int32_t token, int32_t k, SamplerScratch& scratch);

}  // namespace tandem::model
