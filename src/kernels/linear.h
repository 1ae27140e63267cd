// SPDX-License-Identifier: Apache-2.0
// y[t,n] = sum_k x[t,k] * w[n,k]
//   tensors x bf16 [T,K];  w bf16 [N,K], packed once by linear_pack;  y bf16 or f32 [T,N];
//           rows of x and y may be strided
//   needs   N >= 1, K >= 1; y does not overlap x; scratch linear_scratch_bytes; T == 0 is a no-op
//   math    products and sums in f32, one rounding to bf16 at the store (none for f32)
//   repeat  bitwise; a row depends neither on its batch nor on T (CPU: one chain over k a column)
//   graph   capturable: no allocation, no sync, only exec.stream
//   cost    2TNK FLOP, reads 2NK + 2TK bytes: bandwidth-bound for few rows, compute-bound for many
//   bound   |y - ref| <= (K+1) 2^-24 sum_k |x w| + store (2^-8 |ref| or 0); derived in
//           linear_test.cpp
//   source  HF nn.Linear without bias, which rounds logits to bf16 where we keep f32
#pragma once

#include "core/exec.h"

namespace tandem::kernels {

// Weights in the order that this device's kernel reads; a view, the caller owns the bytes.
struct LinearWeight {
  void* data = nullptr;
  int64_t n = 0, k = 0;
  Device device{};
};
[[nodiscard]] size_t linear_weight_bytes(Device device, int64_t n, int64_t k);
// w bf16 [N,K] row major, rows may be strided; `out` has linear_weight_bytes, 64-byte aligned.
LinearWeight linear_pack(const Exec& exec, Tensor w, void* out);

struct LinearArgs {
  Tensor x;
  LinearWeight weight;
  Tensor y;
};
[[nodiscard]] size_t linear_scratch_bytes(Device device, int64_t t, int64_t k);
void linear(const Exec& exec, const LinearArgs& args);

}  // namespace tandem::kernels
