// SPDX-License-Identifier: Apache-2.0
// p = softmax(logits[t,:]);  experts[t,0..K) = the K largest, largest first, ties to the lower
// index;  weights[t,k] = p of that expert, over the sum of the K where `renormalise`.
// Then the order for the expert products: pick i = t*K+k gets slot slots[i]; the slots of expert e
// are expert_begin[e] .. expert_begin[e+1]-1, in ascending order of i; slot_picks[slots[i]] = i.
//   tensors logits f32 [T,E], rows may be strided;  experts i32 [T,K];  weights f32 [T,K];
//           expert_begin i32 [E+1];  slots, slot_picks i32 [T*K]
//   needs   1 <= K <= E <= 1024, K <= 64; T == 0 gives empty expert ranges
//   math    f32; the sum over E in index order. A row of NaN gives valid experts and NaN weights
//   repeat  bitwise; a row's experts and weights do not depend on its batch
//   graph   capturable: no allocation, no sync, only exec.stream
//   cost    reads 4TE bytes, writes 16TK: latency-bound
//   bound   experts equal to the reference's on equal logits; |w - ref| <= (E + 8) 2^-24 ref +
//   2^-126;
//           derived in router_test.cpp
//   source  HF Qwen3MoeSparseMoeBlock, whose logits and weights are rounded to bf16 where we keep
//   f32
#pragma once

#include "core/exec.h"

namespace tandem::kernels {

constexpr int64_t kRouterExpertsMax = 1024;
constexpr int64_t kRouterPicksMax = 64;

struct RouterArgs {
  Tensor logits;
  Tensor experts, weights;
  Tensor expert_begin, slots, slot_picks;
  bool renormalise = true;
};
void router(const Exec& exec, const RouterArgs& args);

}  // namespace tandem::kernels
