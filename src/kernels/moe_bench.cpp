// SPDX-License-Identifier: Apache-2.0
#include "kernels/moe.h"

#include <algorithm>

#include "kernels/bench_support.h"
#include "kernels/cases.h"
#include "kernels/router.h"

namespace tandem::kernels {
namespace {

void bench_case(const OpBench& b, const MoeCase& c) {
  const char* name = "kernels/moe";
  if (!c.bench || !b.report.wants(name, c.name)) return;
  Rng rng(1);
  TestTensor logits(DType::kF32, {c.t, c.experts});
  logits.fill_normal(rng);
  const TestTensor experts(DType::kI32, {c.t, c.picks}), begin(DType::kI32, {c.experts + 1});
  const TestTensor slots(DType::kI32, {c.t * c.picks}), picks_of(DType::kI32, {c.t * c.picks});
  const TestTensor weights(DType::kF32, {c.t, c.picks});
  const RouterArgs routing{.logits = logits,
                           .experts = experts,
                           .weights = weights,
                           .expert_begin = begin,
                           .slots = slots,
                           .slot_picks = picks_of};
  const auto t = static_cast<double>(c.t), picks = static_cast<double>(c.picks);
  router(b.exec.exec, routing);
  TestTensor x(DType::kBf16, {c.t, c.hidden}), y(DType::kBf16, {c.t, c.hidden});
  TestTensor gate(DType::kBf16, {c.experts, c.intermediate, c.hidden});
  TestTensor up(DType::kBf16, {c.experts, c.intermediate, c.hidden});
  TestTensor down(DType::kBf16, {c.experts, c.hidden, c.intermediate});
  x.fill_normal(rng);
  gate.fill_normal(rng, 0.05F);
  up.fill_normal(rng, 0.05F);
  down.fill_normal(rng, 0.05F);
  const Buffer packed(moe_weight_bytes({}, c.experts, c.hidden, c.intermediate));
  const MoeWeight weight =
      moe_pack(b.exec.exec, {.gate = gate, .up = up, .down = down, .out = packed.data()});
  const bench::Timing timing = bench::measure([&] {
    moe(b.exec.exec, {.x = x,
                      .weight = weight,
                      .weights = routing.weights,
                      .expert_begin = routing.expert_begin,
                      .slots = routing.slots,
                      .slot_picks = routing.slot_picks,
                      .y = y});
  });
  double touched = 0;
  for (int64_t e = 0; e < c.experts; ++e) {
    if (begin.at(e + 1) > begin.at(e)) ++touched;
  }
  const double expert = 3 * static_cast<double>(c.hidden * c.intermediate);
  add_row(b, name, c.name, 2 * t * picks * expert, 2 * touched * expert, timing);
}

}  // namespace

void bench_moe(const OpBench& b) {
  for (const MoeCase& c : kMoeCases) bench_case(b, c);
  for (const MoeCase& c : kMoeBenchCases) bench_case(b, c);
}

}  // namespace tandem::kernels
