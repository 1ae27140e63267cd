// SPDX-License-Identifier: Apache-2.0
// r[t,:] = residual[t,:] + x[t,:];  y[t,:] = r[t,:] / sqrt(mean(r[t,:]^2) + eps) * w
//   tensors x bf16 [T,H];  residual bf16 [T,H] or none, replaced by r;  w bf16 [H];
//           y bf16 [T,H], may alias x;  rows may be strided
//   needs   H % 8 == 0, H >= 8; T == 0 is a no-op
//   math    r rounded to bf16, as a separate add would; sums in f32; y rounded once, at the store
//   repeat  bitwise equal for equal H; a row does not depend on its batch
//   graph   capturable: no allocation, no sync, only exec.stream
//   cost    reads 2TH + 2H bytes, writes 2TH; with residual 4TH each: bandwidth-bound
//   bound   |y - ref| <= (2^-8 + (H/8 + 24) 2^-24) |ref|; derived in rms_norm_test.cpp
//   source  Zhang & Sennrich 2019; HF Qwen3RMSNorm, which also rounds before '* w': counted in the
//           golden tolerance
#pragma once

#include "core/exec.h"

namespace tandem::kernels {

struct RmsNormArgs {
  Tensor x;
  Tensor residual{};  // data == nullptr: none
  Tensor weight, y;
  float eps = 1e-6F;
};
void rms_norm(const Exec& exec, const RmsNormArgs& args);

}  // namespace tandem::kernels
