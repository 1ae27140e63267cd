// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <cstring>

#include "kernels/cpu/ops.h"

namespace tandem::kernels::cpu {

void embedding(const Exec& exec, const EmbeddingArgs& args) {
  const auto* tokens = args.tokens.as<int32_t>();
  const int64_t vocab = args.table.size(0), hidden = args.table.size(1);
  exec.parallel_for(args.tokens.size(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      CHECK(0 <= tokens[t] && tokens[t] < vocab, "token {} of row {}, V {}", tokens[t], t, vocab);
      std::memcpy(static_cast<void*>(args.y.row<bf16>(t)), args.table.row<bf16>(tokens[t]),
                  static_cast<size_t>(hidden) * sizeof(bf16));
    }
  });
}

}  // namespace tandem::kernels::cpu
