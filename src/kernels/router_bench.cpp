// SPDX-License-Identifier: Apache-2.0
#include "kernels/router.h"

#include "kernels/bench_support.h"
#include "kernels/cases.h"

namespace tandem::kernels {
namespace {

void bench_case(const OpBench& b, const MoeCase& c) {
  if (!c.bench || !b.report.wants("kernels/router", c.name)) return;
  TestTensor logits(DType::kF32, {c.t, c.experts});
  Rng rng(1);
  logits.fill_normal(rng);
  const TestTensor experts(DType::kI32, {c.t, c.picks}), weights(DType::kF32, {c.t, c.picks});
  const TestTensor begin(DType::kI32, {c.experts + 1});
  const TestTensor slots(DType::kI32, {c.t * c.picks}), picks_of(DType::kI32, {c.t * c.picks});
  const bench::Timing timing = bench::measure([&] {
    router(b.exec.exec, {.logits = logits,
                         .experts = experts,
                         .weights = weights,
                         .expert_begin = begin,
                         .slots = slots,
                         .slot_picks = picks_of});
  });
  const double bytes = static_cast<double>(c.t) *
                       (4 * static_cast<double>(c.experts) + 16 * static_cast<double>(c.picks));
  add_row(b, "kernels/router", c.name, 0, bytes, timing);
}

}  // namespace

void bench_router(const OpBench& b) {
  for (const MoeCase& c : kMoeCases) bench_case(b, c);
  for (const MoeCase& c : kMoeBenchCases) bench_case(b, c);
}

}  // namespace tandem::kernels
