// SPDX-License-Identifier: Apache-2.0
#include "kernels/router.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/ops.h"

namespace tandem::kernels::cpu {
namespace {

void route_row(const float* logits, int64_t experts, int64_t picks, bool renormalise,
               int32_t* chosen, float* weights) {
  float p[kRouterExpertsMax];
  const float highest = *std::max_element(logits, logits + experts);
  float sum = 0.0F;
  for (int64_t e = 0; e < experts; ++e) {
    p[e] = std::exp(logits[e] - highest);
    sum += p[e];
  }
  // Chosen by logit, not by p: exp may make two different logits equal.
  bool taken[kRouterExpertsMax] = {};
  float chosen_sum = 0.0F;
  for (int64_t k = 0; k < picks; ++k) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; ++e) {
      if (!taken[e] && (best < 0 || logits[e] > logits[best])) best = e;
    }
    taken[best] = true;
    chosen[k] = static_cast<int32_t>(best);
    weights[k] = p[best];
    chosen_sum += p[best];
  }
  const float divisor = renormalise ? chosen_sum : sum;
  for (int64_t k = 0; k < picks; ++k) weights[k] /= divisor;
}

// A stable counting sort of the picks by expert.
void sort_by_expert(const RouterArgs& args) {
  const int64_t experts = args.logits.size(1), picks = args.slots.size(0);
  const auto* chosen = args.experts.as<int32_t>();
  auto* begin = args.expert_begin.as<int32_t>();
  auto* slots = args.slots.as<int32_t>();
  auto* slot_picks = args.slot_picks.as<int32_t>();
  std::fill(begin, begin + experts + 1, 0);
  for (int64_t i = 0; i < picks; ++i) ++begin[chosen[i] + 1];
  for (int64_t e = 0; e < experts; ++e) begin[e + 1] += begin[e];
  int32_t next[kRouterExpertsMax];
  std::copy(begin, begin + experts, next);
  for (int64_t i = 0; i < picks; ++i) {
    slots[i] = next[chosen[i]]++;
    slot_picks[slots[i]] = static_cast<int32_t>(i);
  }
}

}  // namespace

void router(const Exec& exec, const RouterArgs& args) {
  const int64_t picks = args.experts.size(1);
  CHECK(args.experts.is_dense() && args.weights.is_dense(), "experts and weights have gaps");
  exec.parallel_for(args.logits.size(0), 32, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      route_row(args.logits.row<float>(t), args.logits.size(1), picks, args.renormalise,
                args.experts.row<int32_t>(t), args.weights.row<float>(t));
    }
  });
  sort_by_expert(args);
}

}  // namespace tandem::kernels::cpu
