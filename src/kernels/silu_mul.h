// SPDX-License-Identifier: Apache-2.0
// y[t,i] = silu(g) * u,  g = gate_up[t,i],  u = gate_up[t,I+i],  silu(g) = g / (1 + exp(-g))
//   tensors gate_up bf16 [T,2I];  y bf16 [T,I]; rows may be strided
//   needs   I % 8 == 0, I >= 8; y does not overlap gate_up; T == 0 is a no-op
//   math    f32 inside, one rounding at the store
//   repeat  bitwise; a row does not depend on its batch
//   graph   capturable: no allocation, no sync, only exec.stream
//   cost    reads 4TI bytes, writes 2TI: bandwidth-bound
//   bound   |y - ref| <= (2^-8 + 2^-19) |ref| + 2^-121 |u|; derived in silu_mul_test.cpp
//   source  Shazeer 2020 (SwiGLU); HF Qwen3MLP, which also rounds silu(g): counted in the golden
//           tolerance
#pragma once

#include "core/exec.h"

namespace tandem::kernels {

struct SiluMulArgs {
  Tensor gate_up, y;
};
void silu_mul(const Exec& exec, const SiluMulArgs& args);

}  // namespace tandem::kernels
