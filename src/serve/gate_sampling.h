// SPDX-License-Identifier: Apache-2.0
// The fields that the chat and the completions endpoint share: sampling, stops, lengths, streaming,
// tolerated bookkeeping, and the list of what is refused by name. Called by gate.cpp alone.
#pragma once

#include "core/result.h"
#include "serve/schema.h"

namespace tandem::serve {

// kNotFound (model_not_found) unless `model` is absent or the served name.
[[nodiscard]] Result<void> check_model(ObjectReader& body, const GateContext& context);

// kUnsupported for each field that would change the answer in a way we don't do: silence would be a
// lie.
[[nodiscard]] Result<void> refuse_unsupported(ObjectReader& body);

// user, metadata, store, ...: bounded, typed, without effect.
[[nodiscard]] Result<void> check_tolerated(ObjectReader& body, const GateLimits& limits);

// Everything but logprobs, whose shape differs between the endpoints. Needs request.endpoint.
[[nodiscard]] Result<void> read_shared(ObjectReader& body, const GateContext& context,
                                       GenerationRequest& request);

// An array of token ids in [0, vocab_size).
[[nodiscard]] Result<std::vector<int32_t>> read_token_ids(JsonArray items, const std::string& path,
                                                          int32_t vocab_size);

}  // namespace tandem::serve
