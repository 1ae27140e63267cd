// SPDX-License-Identifier: Apache-2.0
// Passes over a chunk of stored values while loading. weights.cpp calls them.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tandem::model {

[[nodiscard]] bool is_convertible_to_bf16(DType stored);  // bf16, f16, f32

// Rounds `count` values to nearest even. `stored` is kF16 or kF32; `in` may be unaligned.
void convert_to_bf16(DType stored, const void* in, bf16* out, int64_t count);

struct NonFinite {
  int64_t count = 0;
  int64_t first = -1;  // index in the whole tensor
};

// Adds the NaNs and infinities of values[0, count), which begin at element `begin` of their tensor.
void find_non_finite(const bf16* values, int64_t count, int64_t begin, NonFinite& found);

}  // namespace tandem::model
