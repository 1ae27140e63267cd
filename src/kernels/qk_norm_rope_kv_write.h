// SPDX-License-Identifier: Apache-2.0
// Per row t and head h, with p = positions[t] and (page, i) = divmod(slots[t], page_tokens):
//   q[t,h] <- rope(p, rms_norm(q[t,h]) * wq)      in place
//   k_pages[page,h,i] <- rope(p, rms_norm(k[t,h]) * wk);   v_pages[page,h,i] <- v[t,h]
//   rope(p, (a|b)) = (a cos_p - b sin_p | b cos_p + a sin_p), a and b the halves of a head
//   tensors qkv bf16 [T,(Hq+2Hkv)*D] = q | k | v, rows may be strided;  wq, wk bf16 [D];
//           rope f32 [P,D] = cos | sin, D/2 each;  positions, slots i32 [T];
//           k_pages, v_pages bf16 [pages,Hkv,page_tokens,D]
//   needs   D % 8 == 0; positions in [0,P), slots in the pages, no slot twice; T == 0 is a no-op
//   math    norm and rotation in f32, one rounding at the store
//   repeat  bitwise; a row does not depend on its batch
//   graph   capturable: no allocation, no sync, only exec.stream
//   cost    reads and writes 2T(Hq+2Hkv)D bytes, reads 4TD of rope: bandwidth-bound
//   bound   |y - ref| <= 2^-8 |ref| + (D/8 + 28) 2^-24 (|a| + |b|), a and b normed; derived in
//           qk_norm_rope_kv_write_test.cpp
//   source  HF Qwen3Attention; Su et al. 2021 in the half-split form. HF rounds the norm, cos and
//           sin to bf16 first: counted in the golden tolerance
#pragma once

#include "core/exec.h"

namespace tandem::kernels {

struct QkNormRopeKvWriteArgs {
  Tensor qkv;
  Tensor q_weight, k_weight;
  Tensor rope, positions, slots;
  Tensor k_pages, v_pages;
  int64_t q_heads = 0;  // Hq; Hkv and D are those of the pages
  float eps = 1e-6F;
};
void qk_norm_rope_kv_write(const Exec& exec, const QkNormRopeKvWriteArgs& args);

}  // namespace tandem::kernels
