// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.h"

#include "kernels/bench_support.h"
#include "kernels/cases.h"

namespace tandem::kernels {

void bench_rms_norm(const OpBench& b) {
  for (const RowsCase& c : kRowsCases) {
    if (!c.bench || !b.report.wants("kernels/rms_norm", c.name)) continue;
    TestTensor x(DType::kBf16, {c.t, c.width}), residual(DType::kBf16, {c.t, c.width});
    TestTensor w(DType::kBf16, {c.width}), y(DType::kBf16, {c.t, c.width});
    Rng rng(1);
    x.fill_normal(rng);
    w.fill_normal(rng);
    const bench::Timing timing = bench::measure(
        [&] { rms_norm(b.exec.exec, {.x = x, .residual = residual, .weight = w, .y = y}); });
    add_row(b, "kernels/rms_norm", c.name, 0, 8 * static_cast<double>(c.t * c.width), timing);
  }
}

}  // namespace tandem::kernels
