// SPDX-License-Identifier: Apache-2.0
#include "kernels/silu_mul.h"

#include "kernels/bench_support.h"
#include "kernels/cases.h"

namespace tandem::kernels {

void bench_silu_mul(const OpBench& b) {
  for (const RowsCase& c : kRowsCases) {
    if (!c.bench || !b.report.wants("kernels/silu_mul", c.name)) continue;
    TestTensor gate_up(DType::kBf16, {c.t, 2 * c.width}), y(DType::kBf16, {c.t, c.width});
    Rng rng(1);
    gate_up.fill_normal(rng);
    const bench::Timing timing =
        bench::measure([&] { silu_mul(b.exec.exec, {.gate_up = gate_up, .y = y}); });
    add_row(b, "kernels/silu_mul", c.name, 0, 6 * static_cast<double>(c.t * c.width), timing);
  }
}

}  // namespace tandem::kernels
