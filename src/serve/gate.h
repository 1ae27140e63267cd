// SPDX-License-Identifier: Apache-2.0
// The one admission gate: JSON of a client in, checked plain values out, or one error that names
// the field. No value passes untyped: every integer that could become an index is compared with the
// model's sizes here. Pure functions of their arguments; serve/openai_prepare.cpp calls them on a
// worker thread. docs/api.md lists the fields.
#pragma once

#include "core/result.h"
#include "serve/schema.h"

namespace tandem::serve {

// Bodies of POST /v1/chat/completions and /v1/completions.
[[nodiscard]] Result<GenerationRequest> read_chat_request(JsonValue body,
                                                          const GateContext& context);
[[nodiscard]] Result<GenerationRequest> read_completion_request(JsonValue body,
                                                                const GateContext& context);
[[nodiscard]] Result<TokenizeRequest> read_tokenize_request(JsonValue body,
                                                            const GateContext& context);
[[nodiscard]] Result<DetokenizeRequest> read_detokenize_request(JsonValue body,
                                                                const GateContext& context);

// What a request may generate once its prompt's length is known: max_tokens clamped to the context
// and to the KV pool. kTooLarge, at once, where not even one token fits or the request's output
// budget is over the limit.
[[nodiscard]] Result<int32_t> output_tokens(const GenerationRequest& request,
                                            const GateContext& context, size_t prompt_tokens,
                                            size_t prompts);

}  // namespace tandem::serve
