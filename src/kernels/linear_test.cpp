// SPDX-License-Identifier: Apache-2.0
// The bound. A chain of K fused multiply-adds in f32 has |error| <= gamma_K sum|x w| with gamma_K =
// K u / (1 - K u), u = 2^-24 (Higham 2002, section 3.1); a target without FMA also rounds each
// product, hence K + 1. Rounding to bf16 adds 2^-8 of the result. 1.01 covers products of the two.
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cases.h"
#include "kernels/test_support.h"

namespace tandem::kernels {
namespace {

struct Problem {
  TestTensor x, w;
  Buffer packed;
  LinearWeight weight;

  Problem(const LinearCase& c, uint64_t seed)
      : x(DType::kBf16, {c.t, c.k}),
        w(DType::kBf16, {c.n, c.k}),
        packed(linear_weight_bytes({}, c.n, c.k)) {
    Rng rng(seed);
    x.fill_normal(rng);
    w.fill_normal(rng, 0.5F);
    weight = linear_pack(TestExec(0).exec, w, packed.data());
  }
};

void run(const Problem& p, const Tensor& x, const Tensor& y, TestTeam* team = nullptr) {
  TestExec exec(linear_scratch_bytes({}, x.size(0), p.weight.k), team);
  linear(exec.exec, {.x = x, .weight = p.weight, .y = y});
}

void compare(const LinearCase& c, const Problem& p, const TestTensor& y, double store) {
  Worst worst;
  for (int64_t t = 0; t < c.t; ++t) {
    for (int64_t n = 0; n < c.n; ++n) {
      double sum = 0, absolute = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        const double product = p.x.at(t * c.k + k) * p.w.at(n * c.k + k);
        sum += product;
        absolute += std::abs(product);
      }
      const double chain = static_cast<double>(c.k + 1) * 0x1p-24 * absolute;
      worst.see(t * c.n + n, y.at(t * c.n + n), sum, 1.01 * (chain + store * std::abs(sum)));
    }
  }
  EXPECT_TRUE(worst.ok()) << c.name << ": " << worst.text();
}

TEST(Linear, WithinTheDerivedBoundAndRepeatsBitwise) {
  for (const LinearCase& c : kLinearCases) {
    const Problem p(c, 1);
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      TestTensor y(dtype, {c.t, c.n}), again(dtype, {c.t, c.n});
      run(p, p.x, y);
      compare(c, p, y, dtype == DType::kBf16 ? 0x1p-8 : 0.0);
      run(p, p.x, again.fill_bytes(0x7f));
      EXPECT_TRUE(y.same_bits(again)) << c.name;
      EXPECT_TRUE(y.sentinels_intact() && again.sentinels_intact()) << c.name;
    }
  }
}

TEST(Linear, ARowHasTheSameBitsAloneAndInABatchOfEverySize) {
  const LinearCase c{"batch", 60, 83, 517};
  const Problem p(c, 2);
  TestTensor alone(DType::kF32, {c.t, c.n});
  for (int64_t t = 0; t < c.t; ++t) run(p, p.x.view().rows(t, t + 1), alone.view().rows(t, t + 1));
  for (int64_t count = 2; count <= c.t; ++count) {
    TestTensor batch(DType::kF32, {count, c.n});
    // The last `count` rows, so that each row stands at every place of a tile.
    run(p, p.x.view().rows(c.t - count, c.t), batch);
    for (int64_t i = 0; i < count * c.n; ++i) {
      ASSERT_EQ(batch.at(i), alone.at((c.t - count) * c.n + i)) << count << " rows, element " << i;
    }
  }
}

TEST(Linear, ThreadsChangeNoBit) {
  const LinearCase c{"threads", 101, 1000, 333};
  const Problem p(c, 3);
  TestTensor one(DType::kBf16, {c.t, c.n}), many(DType::kBf16, {c.t, c.n});
  run(p, p.x, one);
  TestTeam team(4);
  run(p, p.x, many, &team);
  EXPECT_TRUE(one.same_bits(many));
}

TEST(Linear, RowsMayBeStridedAndTheGapsAreLeftAlone) {
  const LinearCase c{"strided", 9, 40, 64};
  const Problem p(c, 4);
  TestTensor dense(DType::kBf16, {c.t, c.n}), wide(DType::kBf16, {c.t, 3 * c.n});
  wide.fill_bytes(0x11);
  Tensor view = wide;
  view.shape[1] = c.n;
  view.data = wide.view().as<bf16>() + c.n;
  run(p, p.x, dense);
  run(p, p.x, view);
  for (int64_t t = 0; t < c.t; ++t) {
    for (int64_t n = 0; n < c.n; ++n) {
      EXPECT_EQ(wide.at(t * 3 * c.n + c.n + n), dense.at(t * c.n + n));
      EXPECT_EQ(wide.view().row<bf16>(t)[n].bits, 0x1111);
      EXPECT_EQ(wide.view().row<bf16>(t)[2 * c.n + n].bits, 0x1111);
    }
  }
}

TEST(LinearDeathTest, IllegalShapesAreRefused) {
  const LinearCase c{"refused", 2, 16, 8};
  const Problem p(c, 5);
  const TestTensor y(DType::kBf16, {2, 16}), narrow(DType::kBf16, {2, 15}), x(DType::kBf16, {2, 9});
  const TestTensor ints(DType::kI32, {2, 16});
  EXPECT_DEATH(run(p, x, y), "x is bf16 \\[2,9\\], wanted bf16 \\[2,8\\]");
  EXPECT_DEATH(run(p, p.x, narrow), "y is bf16 \\[2,15\\]");
  EXPECT_DEATH(run(p, p.x, ints), "y i32");
  TestExec small(64);
  EXPECT_DEATH(linear(small.exec, {.x = p.x, .weight = {}, .y = y}), "N 0 K 0");
}

}  // namespace
}  // namespace tandem::kernels
