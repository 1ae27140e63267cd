// SPDX-License-Identifier: Apache-2.0
// SwiGLU over a stretch of floats, shared by silu_mul and moe.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tandem::kernels::cpu {

// y[i] = bf16(silu(gate[i]) * up[i]), count % 8 == 0.
void silu_mul_row(const bf16* gate, const bf16* up, int64_t count, bf16* y);
// The same for the 16 columns of a panel from f32, and kept in f32 after the rounding.
void silu_mul_panel(const float* gate, const float* up, float* y);

}  // namespace tandem::kernels::cpu
