// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include "kernels/bench_support.h"
#include "kernels/cases.h"

namespace tandem::kernels {

void bench_embedding(const OpBench& b) {
  constexpr int64_t kVocab = 20000;
  for (const RowsCase& c : kRowsCases) {
    if (!c.bench || !b.report.wants("kernels/embedding", c.name)) continue;
    const TestTensor table(DType::kBf16, {kVocab, c.width}), y(DType::kBf16, {c.t, c.width});
    const TestTensor tokens(DType::kI32, {c.t});
    Rng rng(1);
    for (int64_t t = 0; t < c.t; ++t) {
      tokens.view().as<int32_t>()[t] = static_cast<int32_t>(rng.below(kVocab));
    }
    const bench::Timing timing =
        bench::measure([&] { embedding(b.exec.exec, {.tokens = tokens, .table = table, .y = y}); });
    add_row(b, "kernels/embedding", c.name, 0, 4 * static_cast<double>(c.t * c.width), timing);
  }
}

}  // namespace tandem::kernels
