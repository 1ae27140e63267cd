// SPDX-License-Identifier: Apache-2.0
// The bound. The mean of squares is summed in at least 16 chains of at most H/8 rounded steps and a
// tree of at most 6: relative error (H/8 + 6) u, u = 2^-24, halved by the square root; the division
// by H, + eps, sqrt, 1/x and two products add at most 8 u; the store adds 2^-8.
#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cases.h"
#include "kernels/test_support.h"

namespace tandem::kernels {
namespace {

constexpr float kEps = 1e-6F;

struct Problem {
  TestTensor x, residual, w;
  explicit Problem(const RowsCase& c)
      : x(DType::kBf16, {c.t, c.width}),
        residual(DType::kBf16, {c.t, c.width}),
        w(DType::kBf16, {c.width}) {
    Rng rng(static_cast<uint64_t>(c.width));
    x.fill_normal(rng, 3.0F);
    residual.fill_normal(rng, 2.0F);
    w.fill_normal(rng, 0.3F, 1.0F);
  }
  void run(const Tensor& in, const Tensor& y, const Tensor& added, TestTeam* team = nullptr) const {
    const TestExec exec(0, team);
    rms_norm(exec.exec, {.x = in, .residual = added, .weight = w, .y = y, .eps = kEps});
  }
};

void compare(const RowsCase& c, const TestTensor& r, const TestTensor& w, const TestTensor& y) {
  Worst worst;
  for (int64_t t = 0; t < c.t; ++t) {
    double squares = 0;
    for (int64_t i = 0; i < c.width; ++i) squares += std::pow(r.at(t * c.width + i), 2);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(c.width) + double{kEps});
    for (int64_t i = 0; i < c.width; ++i) {
      const double want = r.at(t * c.width + i) * scale * w.at(i);
      const double relative = 0x1p-8 + (static_cast<double>(c.width) / 8 + 24) * 0x1p-24;
      worst.see(t * c.width + i, y.at(t * c.width + i), want, relative * std::abs(want));
    }
  }
  EXPECT_TRUE(worst.ok()) << c.name << ": " << worst.text();
}

TEST(RmsNorm, WithinTheDerivedBoundAndRepeatsBitwise) {
  for (const RowsCase& c : kRowsCases) {
    const Problem p(c);
    TestTensor y(DType::kBf16, {c.t, c.width}), again(DType::kBf16, {c.t, c.width});
    p.run(p.x, y, {});
    compare(c, p.x, p.w, y);
    p.run(p.x, again.fill_bytes(0x7f), {});
    EXPECT_TRUE(y.same_bits(again) && y.sentinels_intact()) << c.name;
  }
}

TEST(RmsNorm, TheResidualIsAddedAsASeparateBf16AddWould) {
  for (const RowsCase& c : kRowsCases) {
    Problem p(c);
    TestTensor sum(DType::kBf16, {c.t, c.width}), y(DType::kBf16, {c.t, c.width});
    for (int64_t i = 0; i < c.t * c.width; ++i) {
      sum.view().as<bf16>()[i] = bf16(static_cast<float>(p.x.at(i) + p.residual.at(i)));
    }
    p.run(p.x, y, p.residual);
    EXPECT_TRUE(p.residual.same_bits(sum) && p.residual.sentinels_intact()) << c.name;
    compare(c, sum, p.w, y);
  }
}

TEST(RmsNorm, ARowDoesNotDependOnItsBatchOrThreads) {
  const RowsCase c{"batch", 130, 264};
  const Problem p(c);
  TestTensor whole(DType::kBf16, {c.t, c.width}), alone(DType::kBf16, {c.t, c.width});
  TestTeam team(3);
  p.run(p.x, whole, {}, &team);
  for (int64_t t = 0; t < c.t; ++t) {
    p.run(p.x.view().rows(t, t + 1), alone.view().rows(t, t + 1), {});
  }
  EXPECT_TRUE(whole.same_bits(alone));
}

TEST(RmsNorm, YMayAliasX) {
  const RowsCase c{"alias", 5, 96};
  const Problem p(c);
  TestTensor y(DType::kBf16, {c.t, c.width});
  p.run(p.x, y, {});
  p.run(p.x, p.x, {});
  EXPECT_TRUE(y.same_bits(p.x));
}

TEST(RmsNormDeathTest, IllegalShapesAreRefused) {
  const Problem p(RowsCase{"refused", 2, 64});
  const TestTensor narrow(DType::kBf16, {2, 56}), odd(DType::kBf16, {2, 60});
  EXPECT_DEATH(p.run(p.x, narrow, {}), "y is bf16 \\[2,56\\]");
  EXPECT_DEATH(p.run(odd, odd, {}), "H 60");
  EXPECT_DEATH(p.run(p.x, p.x, narrow), "residual is bf16");
}

}  // namespace
}  // namespace tandem::kernels
