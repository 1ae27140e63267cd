// SPDX-License-Identifier: Apache-2.0
// Causal attention over a paged cache; the row at position p sees the keys 0..p of its sequence:
//   y[t,h,:] = sum_j softmax_j(scale q[t,h,:] . k[j,g,:]) v[j,g,:],   g = h / (Hq/Hkv)
// Prompt chunks (with or without a cached prefix) and decode rows stand in one call: a sequence is
// a run of rows at consecutive positions whose keys and values are already in the pages.
//   tensors q bf16 [T,Hq*D], y bf16 [T,Hq*D], rows may be strided;
//           k_pages, v_pages bf16 [pages,Hkv,page_tokens,D];
//           seq_rows i32 [S+1]: sequence s has rows seq_rows[s] .. seq_rows[s+1]-1, covering [0,T);
//           seq_positions i32 [S]: position of its first row;
//           seq_pages i32 [S+1] into page_ids i32 [.]: its page i holds positions
//           [i*page_tokens, (i+1)*page_tokens)
//   needs   Hq % Hkv == 0, D % 8 == 0, D <= 256; pages cover every row; finite keys and values;
//           scratch attention_scratch_bytes; T == 0 is a no-op
//   math    scores, softmax and sums in f32, probabilities never rounded; one rounding at the store
//   repeat  bitwise; a row depends only on its sequence up to itself: key blocks of 64 at absolute
//           positions, in order, whatever the chunks, the batch and the page size
//   graph   capturable: no allocation, no sync, only exec.stream
//   cost    4 Hq D FLOP per (row, key), 4 Hkv D bytes per key and row block: prompts are
//           compute-bound, decode rows bandwidth-bound
//   bound   |y - ref| <= 2^-8 |ref| + 2 ((D/4 + 9) S + 1.1 L + 24) 2^-24 max|v|, L keys, S the
//           largest scale sum_d |q_d k_d|; derived in attention_test.cpp
//   source  Milakov & Gimelshein 2018 (online softmax); Dao et al. 2022; paging: Kwon et al. 2023.
//           HF rounds probabilities to bf16: counted in the golden tolerance
#pragma once

#include "core/exec.h"

namespace tandem::kernels {

struct AttentionArgs {
  Tensor q;
  Tensor k_pages, v_pages;
  Tensor seq_rows, seq_positions, seq_pages, page_ids;
  Tensor y;
  int64_t q_heads = 0;  // Hq; Hkv and D are those of the pages
  float scale = 0.0F;
};
[[nodiscard]] size_t attention_scratch_bytes(Device device, int64_t sequences);
void attention(const Exec& exec, const AttentionArgs& args);

}  // namespace tandem::kernels
