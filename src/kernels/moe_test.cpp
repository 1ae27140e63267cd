// SPDX-License-Identifier: Apache-2.0
// The bound, u = 2^-24. With g = x . gate_i and v = x . up_i as in linear_test.cpp, |dg| <= (H+1)
// u G_i, G_i = sum |x gate_i|, and alike for v with U_i. silu's slope is below 1.1 and |silu(g)|
// <= |g| <= G_i, so h_i = silu(g) v is off by at most (2.1 (H+1) + 8) u G_i U_i before it is
// rounded to bf16 (2^-8 |h_i|). The down product adds (I+1) u sum |d_i h_i|, the weighted sum
// (K+2) u, the store 2^-8 of the result. Together: 2^-8 |y| + sum_k w_k sum_i |d_i| (2^-8 |h_i| +
// (2.1 H + I + K + 16) u G_i U_i).
#include "kernels/moe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cases.h"
#include "kernels/router.h"
#include "kernels/test_support.h"

namespace tandem::kernels {
namespace {

struct Problem {
  MoeCase c;
  TestTensor x, gate, up, down, logits;
  Buffer packed;
  MoeWeight weight;

  explicit Problem(const MoeCase& of)
      : c(of),
        x(DType::kBf16, {c.t, c.hidden}),
        gate(DType::kBf16, {c.experts, c.intermediate, c.hidden}),
        up(DType::kBf16, {c.experts, c.intermediate, c.hidden}),
        down(DType::kBf16, {c.experts, c.hidden, c.intermediate}),
        logits(DType::kF32, {c.t, c.experts}),
        packed(moe_weight_bytes({}, c.experts, c.hidden, c.intermediate)) {
    Rng rng(static_cast<uint64_t>(c.hidden));
    const float spread = 1.0F / std::sqrt(static_cast<float>(c.hidden));
    x.fill_normal(rng);
    gate.fill_normal(rng, 2.0F * spread);
    up.fill_normal(rng, 2.0F * spread);
    down.fill_normal(rng, 1.0F / std::sqrt(static_cast<float>(c.intermediate)));
    logits.fill_normal(rng, 2.0F);
    weight =
        moe_pack(TestExec(0).exec, {.gate = gate, .up = up, .down = down, .out = packed.data()});
  }
};

struct Routing {
  TestTensor experts, weights, expert_begin, slots, slot_picks;
  Routing(const Problem& p, int64_t begin, int64_t end)
      : experts(DType::kI32, {end - begin, p.c.picks}),
        weights(DType::kF32, {end - begin, p.c.picks}),
        expert_begin(DType::kI32, {p.c.experts + 1}),
        slots(DType::kI32, {(end - begin) * p.c.picks}),
        slot_picks(DType::kI32, {(end - begin) * p.c.picks}) {
    router(TestExec(0).exec, {.logits = p.logits.view().rows(begin, end),
                              .experts = experts,
                              .weights = weights,
                              .expert_begin = expert_begin,
                              .slots = slots,
                              .slot_picks = slot_picks});
  }
};

void run(const Problem& p, int64_t begin, int64_t end, const Tensor& y, TestTeam* team = nullptr) {
  const Routing r(p, begin, end);
  TestExec exec(moe_scratch_bytes(p.weight, end - begin, p.c.picks), team);
  moe(exec.exec, {.x = p.x.view().rows(begin, end),
                  .weight = p.weight,
                  .weights = r.weights,
                  .expert_begin = r.expert_begin,
                  .slots = r.slots,
                  .slot_picks = r.slot_picks,
                  .y = y});
}

struct Hidden {
  std::vector<double> h, bound;  // [I]
};

Hidden hidden_of(const Problem& p, int64_t t, int64_t e) {
  const MoeCase& c = p.c;
  const double terms =
      2.1 * static_cast<double>(c.hidden) + static_cast<double>(c.intermediate + c.picks) + 16;
  Hidden out;
  for (int64_t i = 0; i < c.intermediate; ++i) {
    double g = 0, u = 0, g_absolute = 0, u_absolute = 0;
    for (int64_t j = 0; j < c.hidden; ++j) {
      const double x = p.x.at(t * c.hidden + j);
      const int64_t w = (e * c.intermediate + i) * c.hidden + j;
      g += x * p.gate.at(w);
      u += x * p.up.at(w);
      g_absolute += std::abs(x * p.gate.at(w));
      u_absolute += std::abs(x * p.up.at(w));
    }
    out.h.push_back(g / (1.0 + std::exp(-g)) * u);
    out.bound.push_back(0x1p-8 * std::abs(out.h.back()) +
                        terms * 0x1p-24 * g_absolute * u_absolute);
  }
  return out;
}

void compare(const Problem& p, const TestTensor& y) {
  const MoeCase& c = p.c;
  const Routing r(p, 0, c.t);
  Worst worst;
  for (int64_t t = 0; t < c.t; ++t) {
    std::vector<double> want(static_cast<size_t>(c.hidden)), bound(static_cast<size_t>(c.hidden));
    for (int64_t k = 0; k < c.picks; ++k) {
      const auto e = static_cast<int64_t>(r.experts.at(t * c.picks + k));
      const double weight = r.weights.at(t * c.picks + k);
      const Hidden hidden = hidden_of(p, t, e);
      for (int64_t n = 0; n < c.hidden; ++n) {
        for (int64_t i = 0; i < c.intermediate; ++i) {
          const double d = weight * p.down.at((e * c.hidden + n) * c.intermediate + i);
          want[static_cast<size_t>(n)] += d * hidden.h[static_cast<size_t>(i)];
          bound[static_cast<size_t>(n)] += std::abs(d) * hidden.bound[static_cast<size_t>(i)];
        }
      }
    }
    for (int64_t n = 0; n < c.hidden; ++n) {
      const double y_want = want[static_cast<size_t>(n)];
      worst.see(t * c.hidden + n, y.at(t * c.hidden + n), y_want,
                1.01 * (0x1p-8 * std::abs(y_want) + bound[static_cast<size_t>(n)]));
    }
  }
  EXPECT_TRUE(worst.ok()) << c.name << ": " << worst.text();
}

TEST(Moe, WithinTheDerivedBoundAndRepeatsBitwise) {
  for (const MoeCase& c : kMoeCases) {
    const Problem p(c);
    TestTensor y(DType::kBf16, {c.t, c.hidden}), again(DType::kBf16, {c.t, c.hidden});
    run(p, 0, c.t, y);
    compare(p, y);
    run(p, 0, c.t, again.fill_bytes(0x7f));
    EXPECT_TRUE(y.same_bits(again) && y.sentinels_intact()) << c.name;
  }
}

TEST(Moe, ARowHasTheSameBitsAloneInEveryBatchAndOnThreads) {
  const Problem p(MoeCase{"batch", 66, 72, 40, 6, 3});
  TestTensor alone(DType::kBf16, {p.c.t, p.c.hidden});
  for (int64_t t = 0; t < p.c.t; ++t) run(p, t, t + 1, alone.view().rows(t, t + 1));
  TestTeam team(3);
  for (int64_t count = 2; count <= p.c.t; ++count) {
    TestTensor batch(DType::kBf16, {count, p.c.hidden});
    run(p, p.c.t - count, p.c.t, batch, count % 2 == 0 ? &team : nullptr);
    for (int64_t i = 0; i < count * p.c.hidden; ++i) {
      ASSERT_EQ(batch.at(i), alone.at((p.c.t - count) * p.c.hidden + i)) << count << " rows, " << i;
    }
  }
}

TEST(MoeDeathTest, IllegalShapesAreRefused) {
  const Problem p(MoeCase{"refused", 2, 32, 16, 4, 2});
  const TestTensor narrow(DType::kBf16, {2, 24}), y(DType::kBf16, {2, 32});
  EXPECT_DEATH(run(p, 0, 2, narrow), "y is bf16 \\[2,24\\]");
  const Routing r(p, 0, 2);
  r.expert_begin.view().as<int32_t>()[4] = 3;
  TestExec exec(moe_scratch_bytes(p.weight, 2, 2));
  EXPECT_DEATH(moe(exec.exec, {.x = p.x,
                               .weight = p.weight,
                               .weights = r.weights,
                               .expert_begin = r.expert_begin,
                               .slots = r.slots,
                               .slot_picks = r.slot_picks,
                               .y = y}),
               "3 slots of 4");
}

}  // namespace
}  // namespace tandem::kernels
