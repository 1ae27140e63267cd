// SPDX-License-Identifier: Apache-2.0
// y[t,:] = sum_k weights[t,k] * down_e (silu(gate_e x[t,:]) * (up_e x[t,:])),  e = experts[t,k]
// as grouped products over the slots that router.h lays out.
//   tensors x bf16 [T,H], rows may be strided;  gate, up bf16 [E,I,H] and down bf16 [E,H,I], packed
//           once by moe_pack;  weights f32 [T,K];  expert_begin i32 [E+1];  slots, slot_picks i32
//           [T*K];  y bf16 [T,H], rows may be strided
//   needs   H, I >= 1; the order tensors as router() writes them; y does not overlap x; scratch
//           moe_scratch_bytes; T == 0 is a no-op
//   math    products and sums in f32; silu(g) * u rounded to bf16 once (the down product's input);
//           the weighted sum over k = 0, 1, … in f32; one rounding of y at the store
//   repeat  bitwise; a row does not depend on its batch
//   graph   capturable: no allocation, no sync, only exec.stream
//   cost    6TKHI FLOP, reads 6HI bytes per distinct expert: bandwidth-bound below about ten rows
//   an
//           expert, then compute-bound
//   bound   |y - ref| <= 2^-8 |ref| + sum_k w sum_i |d_i| (2^-8 |h_i| + (2.1 H + I + K + 16) 2^-24
//           sum|x gate_i| sum|x up_i|), h the SwiGLU; derived in moe_test.cpp
//   source  HF Qwen3MoeSparseMoeBlock, which rounds gate, up, silu, down and w to bf16: counted in
//           the golden tolerance
#pragma once

#include "core/exec.h"

namespace tandem::kernels {

// Expert weights in the order that this device's kernel reads; a view, the caller owns the bytes.
struct MoeWeight {
  void* gate_up = nullptr;
  void* down = nullptr;
  int64_t experts = 0, hidden = 0, intermediate = 0;
  Device device{};
};
struct MoePackArgs {
  Tensor gate, up, down;
  void* out = nullptr;  // moe_weight_bytes, 64-byte aligned
};
[[nodiscard]] size_t moe_weight_bytes(Device device, int64_t experts, int64_t hidden,
                                      int64_t intermediate);
MoeWeight moe_pack(const Exec& exec, const MoePackArgs& args);

struct MoeArgs {
  Tensor x;
  MoeWeight weight;
  Tensor weights, expert_begin, slots, slot_picks;
  Tensor y;
};
[[nodiscard]] size_t moe_scratch_bytes(const MoeWeight& weight, int64_t t, int64_t picks);
void moe(const Exec& exec, const MoeArgs& args);

}  // namespace tandem::kernels
