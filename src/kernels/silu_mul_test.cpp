// SPDX-License-Identifier: Apache-2.0
// The bound. exp is good to 2 units in the last place (Highway's math library states 1), 1 + exp,
// the division and the product add three roundings: below 2^-21 in all; stated 2^-19. The store
// adds 2^-8. Below g = -88.7 exp(-g) is infinite in f32 and the result 0: what is lost is at most
// 88.8 exp(-88.7) < 2^-121 times |u|.
#include "kernels/silu_mul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cases.h"
#include "kernels/test_support.h"

namespace tandem::kernels {
namespace {

double silu(double g) {
  return g / (1.0 + std::exp(-g));
}

TestTensor gate_up(const RowsCase& c) {
  TestTensor t(DType::kBf16, {c.t, 2 * c.width});
  Rng rng(static_cast<uint64_t>(c.width));
  t.fill_normal(rng, 6.0F);
  return t;
}

TEST(SiluMul, WithinTheDerivedBoundAndRepeatsBitwise) {
  for (const RowsCase& c : kRowsCases) {
    const TestTensor in = gate_up(c);
    // Both tails: exp(-g) beyond the range of f32, and far below 1.
    if (c.t > 0) in.view().as<bf16>()[0] = bf16(-1000.0F);
    if (c.t > 0) in.view().as<bf16>()[1] = bf16(1000.0F);
    if (c.t > 0) in.view().as<bf16>()[2] = bf16(-95.0F);
    TestTensor y(DType::kBf16, {c.t, c.width}), again(DType::kBf16, {c.t, c.width});
    const TestExec exec(0);
    silu_mul(exec.exec, {.gate_up = in, .y = y});
    Worst worst;
    for (int64_t t = 0; t < c.t; ++t) {
      for (int64_t i = 0; i < c.width; ++i) {
        const double up = in.at(t * 2 * c.width + c.width + i);
        const double want = silu(in.at(t * 2 * c.width + i)) * up;
        worst.see(t * c.width + i, y.at(t * c.width + i), want,
                  (0x1p-8 + 0x1p-19) * std::abs(want) + 0x1p-121 * std::abs(up));
      }
    }
    EXPECT_TRUE(worst.ok()) << c.name << ": " << worst.text();
    silu_mul(exec.exec, {.gate_up = in, .y = again});
    EXPECT_TRUE(y.same_bits(again) && y.sentinels_intact()) << c.name;
  }
}

TEST(SiluMul, ARowDoesNotDependOnItsBatchOrThreads) {
  const RowsCase c{"batch", 70, 96};
  const TestTensor in = gate_up(c);
  TestTensor whole(DType::kBf16, {c.t, c.width}), alone(DType::kBf16, {c.t, c.width});
  TestTeam team(3);
  silu_mul(TestExec(0, &team).exec, {.gate_up = in, .y = whole});
  for (int64_t t = 0; t < c.t; ++t) {
    silu_mul(TestExec(0).exec,
             {.gate_up = in.view().rows(t, t + 1), .y = alone.view().rows(t, t + 1)});
  }
  EXPECT_TRUE(whole.same_bits(alone));
}

TEST(SiluMul, NanStaysNan) {
  TestTensor in(DType::kBf16, {1, 16}), y(DType::kBf16, {1, 8});
  in.view().as<bf16>()[3] = bf16(NAN);
  in.view().as<bf16>()[8 + 5] = bf16(NAN);
  silu_mul(TestExec(0).exec, {.gate_up = in, .y = y});
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(std::isnan(y.at(i)), i == 3 || i == 5) << i;
}

TEST(SiluMulDeathTest, IllegalShapesAreRefused) {
  const TestTensor in(DType::kBf16, {1, 24}), y(DType::kBf16, {1, 12}), z(DType::kBf16, {1, 16});
  EXPECT_DEATH(silu_mul(TestExec(0).exec, {.gate_up = in, .y = y}), "I 12");
  EXPECT_DEATH(silu_mul(TestExec(0).exec, {.gate_up = in, .y = z}), "gate_up is bf16");
}

}  // namespace
}  // namespace tandem::kernels
