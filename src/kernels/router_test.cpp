// SPDX-License-Identifier: Apache-2.0
// The bound, u = 2^-24. exp(l - m) has relative error u |l - m| from the subtraction and 2 u of
// its own, the sum over E adds E u, the division u; numerator and denominator together: (E + 8 + 2
// range) u with range = max - min of the row's logits.
#include "kernels/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cases.h"
#include "kernels/test_support.h"

namespace tandem::kernels {
namespace {

struct Routing {
  TestTensor experts, weights, expert_begin, slots, slot_picks;
  Routing(int64_t t, int64_t e, int64_t k)
      : experts(DType::kI32, {t, k}),
        weights(DType::kF32, {t, k}),
        expert_begin(DType::kI32, {e + 1}),
        slots(DType::kI32, {t * k}),
        slot_picks(DType::kI32, {t * k}) {}
  void run(const Tensor& logits, bool renormalise = true, TestTeam* team = nullptr) const {
    router(TestExec(0, team).exec, {.logits = logits,
                                    .experts = experts,
                                    .weights = weights,
                                    .expert_begin = expert_begin,
                                    .slots = slots,
                                    .slot_picks = slot_picks,
                                    .renormalise = renormalise});
  }
};

void compare(const MoeCase& c, const TestTensor& logits, const Routing& r, bool renormalise) {
  Worst worst;
  for (int64_t t = 0; t < c.t; ++t) {
    std::vector<int64_t> order(static_cast<size_t>(c.experts));
    std::iota(order.begin(), order.end(), t * c.experts);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return logits.at(a) > logits.at(b); });
    const double highest = logits.at(order.front());
    const double range = highest - logits.at(order.back());
    double sum = 0;
    const size_t counted = static_cast<size_t>(renormalise ? c.picks : c.experts);
    for (size_t e = 0; e < counted; ++e) sum += std::exp(logits.at(order[e]) - highest);
    for (int64_t k = 0; k < c.picks; ++k) {
      const int64_t expert = order[static_cast<size_t>(k)] - t * c.experts;
      ASSERT_EQ(r.experts.at(t * c.picks + k), static_cast<double>(expert)) << c.name;
      const double want = std::exp(logits.at(t * c.experts + expert) - highest) / sum;
      const double relative = (static_cast<double>(c.experts) + 8 + 2 * range) * 0x1p-24;
      worst.see(t * c.picks + k, r.weights.at(t * c.picks + k), want, relative * want + 0x1p-126);
    }
  }
  EXPECT_TRUE(worst.ok()) << c.name << ": " << worst.text();
}

void check_order(const MoeCase& c, const Routing& r) {
  int64_t slot = 0;
  for (int64_t e = 0; e < c.experts; ++e) {
    ASSERT_EQ(r.expert_begin.at(e), static_cast<double>(slot)) << c.name;
    for (int64_t i = 0; i < c.t * c.picks; ++i) {
      if (r.experts.at(i) != static_cast<double>(e)) continue;
      ASSERT_EQ(r.slots.at(i), static_cast<double>(slot)) << c.name;
      ASSERT_EQ(r.slot_picks.at(slot), static_cast<double>(i)) << c.name;
      ++slot;
    }
  }
  ASSERT_EQ(r.expert_begin.at(c.experts), static_cast<double>(c.t * c.picks));
}

TEST(Router, PicksWeightsAndOrder) {
  for (const MoeCase& c : kMoeCases) {
    for (const bool renormalise : {true, false}) {
      TestTensor logits(DType::kF32, {c.t, c.experts});
      Rng rng(static_cast<uint64_t>(c.experts));
      logits.fill_normal(rng, 3.0F);
      const Routing r(c.t, c.experts, c.picks), again(c.t, c.experts, c.picks);
      r.run(logits, renormalise);
      compare(c, logits, r, renormalise);
      check_order(c, r);
      again.run(logits, renormalise);
      EXPECT_TRUE(r.weights.same_bits(again.weights) && r.slots.same_bits(again.slots)) << c.name;
      EXPECT_TRUE(r.experts.sentinels_intact() && r.weights.sentinels_intact() &&
                  r.expert_begin.sentinels_intact() && r.slots.sentinels_intact() &&
                  r.slot_picks.sentinels_intact());
    }
  }
}

TEST(Router, TiesGoToTheLowerIndex) {
  const TestTensor logits(DType::kF32, {1, 6});
  const float values[] = {1.0F, 2.0F, 2.0F, 0.0F, 2.0F, 1.0F};
  std::copy(std::begin(values), std::end(values), logits.view().as<float>());
  const Routing r(1, 6, 4);
  r.run(logits);
  const double want[] = {1, 2, 4, 0};
  for (int64_t k = 0; k < 4; ++k) EXPECT_EQ(r.experts.at(k), want[k]);
}

TEST(Router, ARowDoesNotDependOnItsBatchOrThreads) {
  TestTensor logits(DType::kF32, {77, 16});
  Rng rng(3);
  logits.fill_normal(rng);
  const Routing whole(77, 16, 4), one(1, 16, 4);
  TestTeam team(3);
  whole.run(logits, true, &team);
  for (int64_t t = 0; t < 77; ++t) {
    one.run(logits.view().rows(t, t + 1));
    for (int64_t k = 0; k < 4; ++k) {
      EXPECT_EQ(one.experts.at(k), whole.experts.at(t * 4 + k));
      EXPECT_EQ(one.weights.at(k), whole.weights.at(t * 4 + k));
    }
  }
}

TEST(Router, ARowOfNanGetsValidExpertsAndNanWeights) {
  TestTensor logits(DType::kF32, {1, 5});
  std::fill_n(logits.view().as<float>(), 5, NAN);
  const Routing r(1, 5, 3);
  r.run(logits);
  for (int64_t k = 0; k < 3; ++k) {
    EXPECT_EQ(r.experts.at(k), static_cast<double>(k));
    EXPECT_TRUE(std::isnan(r.weights.at(k)));
  }
}

TEST(RouterDeathTest, MorePicksThanExpertsAreRefused) {
  const TestTensor logits(DType::kF32, {1, 4});
  EXPECT_DEATH(Routing(1, 4, 5).run(logits), "K 5 E 4");
  EXPECT_DEATH(Routing(1, 3, 2).run(logits), "expert_begin is i32 \\[4\\]");
}

}  // namespace
}  // namespace tandem::kernels
