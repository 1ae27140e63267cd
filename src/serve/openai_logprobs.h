// SPDX-License-Identifier: Apache-2.0
// Log probabilities in the two shapes that OpenAI's endpoints have. Called by stream.cpp.
// Source: the "logprobs" objects of OpenAI's chat completions and legacy completions API reference.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/sampling.h"
#include "text/tokenizer.h"

namespace tandem::serve {

struct ScoredToken {
  SampledToken token;
  int64_t text_offset = 0;  // characters of the choice's text before this token
  bool has_logprob = true;  // false for the first token of an echoed prompt: nothing predicts it
};

// Log probabilities that JSON can't write (-inf) become this, as at OpenAI.
inline constexpr float kLogprobFloor = -9999.0F;

// {"content":[{"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"}]}],
//  "refusal":null}
[[nodiscard]] std::string chat_logprobs_json(const text::Tokenizer& tokenizer,
                                             std::span<const ScoredToken> tokens);

// {"tokens":[],"token_logprobs":[],"top_logprobs":[{text: logprob}],"text_offset":[]}
[[nodiscard]] std::string completion_logprobs_json(const text::Tokenizer& tokenizer,
                                                   std::span<const ScoredToken> tokens);

// Characters (code points) that begin inside `bytes`.
[[nodiscard]] int64_t characters_in(std::string_view bytes);

}  // namespace tandem::serve
