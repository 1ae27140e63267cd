// SPDX-License-Identifier: Apache-2.0
// y[t,:] = table[tokens[t],:]
//   tensors tokens i32 [T];  table bf16 [V,H];  y bf16 [T,H], rows may be strided
//   needs   every token in [0,V); T == 0 is a no-op
//   math    a copy
//   repeat  bitwise; a row does not depend on its batch
//   graph   capturable: no allocation, no sync, only exec.stream
//   cost    reads 2TH + 4T bytes, writes 2TH: bandwidth-bound
//   bound   exact
//   source  Hugging Face Qwen3 embed_tokens: no scale
#pragma once

#include "core/exec.h"

namespace tandem::kernels {

struct EmbeddingArgs {
  Tensor tokens, table, y;
};
void embedding(const Exec& exec, const EmbeddingArgs& args);

}  // namespace tandem::kernels
