// SPDX-License-Identifier: Apache-2.0
// A model that costs nothing and tells on every mix-up: for tests, benches and the simulator. The
// running hash of a sequence's tokens is written into its KV, differently for each layer, kind and
// head; a row's next token is drawn from a hash of what *stands* in the KV of all its positions.
// A page that is stale, foreign, half written, swapped or altered in any byte gives another token
// than fake_next() computes from the tokens alone.
#pragma once

#include <cstdint>
#include <span>

#include "engine/compute.h"

namespace tandem::engine {

struct FakeSettings {
  int32_t layers = 2;
  int32_t kv_heads = 2;
  int32_t head_dim = 8;
  int32_t page_tokens = 4;
  int32_t vocab = 4096;
  // Reads only the last position's KV: then a row costs the same at any length.
  bool read_last_only = false;
  // A row whose input is this token gives NaN; -1: none does.
  int32_t nan_token = -1;
};

[[nodiscard]] Compute make_fake_compute(const FakeSettings& settings);

// What a sound engine draws after `tokens` (prompt and output so far) under `params`. Only seed and
// choice_idx count; penalties and bias have no meaning here.
[[nodiscard]] int32_t fake_next(const FakeSettings& settings, std::span<const int32_t> tokens,
                                const SamplingParams& params);

}  // namespace tandem::engine
