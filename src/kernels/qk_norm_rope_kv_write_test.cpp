// SPDX-License-Identifier: Apache-2.0
// The bound. As in rms_norm_test.cpp, a normed value has relative error (D/8 + 24) u before the
// store, u = 2^-24. The rotation a cos - b sin adds two roundings of at most |a| + |b| (cos and sin
// are the table's own f32 values): (D/8 + 28) u (|a| + |b|). The store adds 2^-8 of the result.
#include "kernels/qk_norm_rope_kv_write.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cases.h"
#include "kernels/test_support.h"

namespace tandem::kernels {
namespace {

constexpr float kEps = 1e-6F;
constexpr int64_t kPositions = 300;

struct Problem {
  HeadsCase c;
  int64_t heads, pages;
  TestTensor qkv, q_weight, k_weight, rope, positions, slots;

  explicit Problem(const HeadsCase& of)
      : c(of),
        heads(c.q_heads + 2 * c.kv_heads),
        pages(c.t / c.page_tokens + 2),
        qkv(DType::kBf16, {c.t, heads * c.head_dim}),
        q_weight(DType::kBf16, {c.head_dim}),
        k_weight(DType::kBf16, {c.head_dim}),
        rope(DType::kF32, {kPositions, c.head_dim}),
        positions(DType::kI32, {c.t}),
        slots(DType::kI32, {c.t}) {
    Rng rng(static_cast<uint64_t>(c.t + c.head_dim));
    qkv.fill_normal(rng, 2.0F);
    q_weight.fill_normal(rng, 0.3F, 1.0F);
    k_weight.fill_normal(rng, 0.3F, 1.0F);
    rope.fill_normal(rng, 0.7F);  // any numbers do: the op only multiplies by them
    for (int64_t t = 0; t < c.t; ++t) {
      positions.view().as<int32_t>()[t] = static_cast<int32_t>(rng.below(kPositions));
      // Distinct, scattered: 7 and the number of slots have no common factor in the cases.
      slots.view().as<int32_t>()[t] = static_cast<int32_t>(7 * t % (pages * c.page_tokens - 1));
    }
  }
};

struct Result {
  TestTensor qkv, k, v;
  explicit Result(const Problem& p)
      : qkv(DType::kBf16, {p.c.t, p.heads * p.c.head_dim}),
        k(DType::kBf16, {p.pages, p.c.kv_heads, p.c.page_tokens, p.c.head_dim}),
        v(DType::kBf16, {p.pages, p.c.kv_heads, p.c.page_tokens, p.c.head_dim}) {
    for (int64_t i = 0; i < p.qkv.view().count(); ++i) {
      qkv.view().as<bf16>()[i] = p.qkv.view().as<bf16>()[i];
    }
    k.fill_bytes(0x33);
    v.fill_bytes(0x33);
  }
  void run(const Problem& p, int64_t begin, int64_t end, TestTeam* team = nullptr) {
    qk_norm_rope_kv_write(TestExec(0, team).exec, {.qkv = qkv.view().rows(begin, end),
                                                   .q_weight = p.q_weight,
                                                   .k_weight = p.k_weight,
                                                   .rope = p.rope,
                                                   .positions = p.positions.view().rows(begin, end),
                                                   .slots = p.slots.view().rows(begin, end),
                                                   .k_pages = k,
                                                   .v_pages = v,
                                                   .q_heads = p.c.q_heads,
                                                   .eps = kEps});
  }
  [[nodiscard]] bool same_bits(const Result& other) const {
    return qkv.same_bits(other.qkv) && k.same_bits(other.k) && v.same_bits(other.v);
  }
};

// One head at flat offset `from` of the input against `got[to ...]`.
void compare_head(const Problem& p, int64_t t, int64_t from, const TestTensor& w,
                  const TestTensor& got, int64_t to, Worst& worst) {
  const int64_t d = p.c.head_dim, half = d / 2;
  double squares = 0;
  for (int64_t i = 0; i < d; ++i) squares += std::pow(p.qkv.at(from + i), 2);
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(d) + double{kEps});
  const auto angle_row = static_cast<int64_t>(p.positions.at(t)) * d;
  for (int64_t i = 0; i < half; ++i) {
    const double a = p.qkv.at(from + i) * scale * w.at(i);
    const double b = p.qkv.at(from + half + i) * scale * w.at(half + i);
    const double c = p.rope.at(angle_row + i), s = p.rope.at(angle_row + half + i);
    const double inner = (static_cast<double>(d) / 8 + 28) * 0x1p-24 * (std::abs(a) + std::abs(b)) *
                         std::max({1.0, std::abs(c), std::abs(s)});
    const double first = a * c - b * s, second = b * c + a * s;
    worst.see(to + i, got.at(to + i), first, 1.01 * (0x1p-8 * std::abs(first) + inner));
    worst.see(to + half + i, got.at(to + half + i), second,
              1.01 * (0x1p-8 * std::abs(second) + inner));
  }
}

int64_t place(const Problem& p, int64_t t, int64_t head) {
  const auto slot = static_cast<int64_t>(p.slots.at(t));
  const int64_t page = slot / p.c.page_tokens, token = slot % p.c.page_tokens;
  return ((page * p.c.kv_heads + head) * p.c.page_tokens + token) * p.c.head_dim;
}

TEST(QkNormRopeKvWrite, WithinTheDerivedBoundAndInTheRightPlaces) {
  for (const HeadsCase& c : kHeadsCases) {
    const Problem p(c);
    Result r(p);
    r.run(p, 0, c.t);
    Worst worst;
    std::vector<bool> written(static_cast<size_t>(r.k.view().count()), false);
    for (int64_t t = 0; t < c.t; ++t) {
      const int64_t row = t * p.heads * c.head_dim;
      for (int64_t h = 0; h < c.q_heads; ++h) {
        compare_head(p, t, row + h * c.head_dim, p.q_weight, r.qkv, row + h * c.head_dim, worst);
      }
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        const int64_t k_from = row + (c.q_heads + h) * c.head_dim;
        compare_head(p, t, k_from, p.k_weight, r.k, place(p, t, h), worst);
        for (int64_t i = 0; i < c.head_dim; ++i) {
          const int64_t at = place(p, t, h) + i;
          EXPECT_EQ(r.v.at(at), p.qkv.at(k_from + c.kv_heads * c.head_dim + i));
          written[static_cast<size_t>(at)] = true;
        }
      }
    }
    EXPECT_TRUE(worst.ok()) << c.name << ": " << worst.text();
    for (int64_t i = 0; i < r.k.view().count(); ++i) {
      if (written[static_cast<size_t>(i)]) continue;
      ASSERT_EQ(r.k.view().as<bf16>()[i].bits, 0x3333) << c.name << ": stray write at " << i;
      ASSERT_EQ(r.v.view().as<bf16>()[i].bits, 0x3333) << c.name << ": stray write at " << i;
    }
    EXPECT_TRUE(r.k.sentinels_intact() && r.v.sentinels_intact() && r.qkv.sentinels_intact());
  }
}

TEST(QkNormRopeKvWrite, RowByRowOnThreadsAndAgainGivesTheSameBits) {
  for (const HeadsCase& c : kHeadsCases) {
    const Problem p(c);
    Result whole(p), again(p), alone(p), threads(p);
    whole.run(p, 0, c.t);
    again.run(p, 0, c.t);
    for (int64_t t = 0; t < c.t; ++t) alone.run(p, t, t + 1);
    TestTeam team(3);
    threads.run(p, 0, c.t, &team);
    EXPECT_TRUE(whole.same_bits(again) && whole.same_bits(alone) && whole.same_bits(threads))
        << c.name;
  }
}

TEST(QkNormRopeKvWriteDeathTest, PlacesOutsideTheCacheAreRefused) {
  const Problem p(HeadsCase{"refused", 2, 2, 1, 16, 16});
  Result r(p);
  p.slots.view().as<int32_t>()[1] = static_cast<int32_t>(p.pages * 16);
  EXPECT_DEATH(r.run(p, 0, 2), "slot 32 of row 1, 32 slots");
  p.slots.view().as<int32_t>()[1] = 1;
  p.positions.view().as<int32_t>()[0] = kPositions;
  EXPECT_DEATH(r.run(p, 0, 2), "position 300 of row 0");
}

}  // namespace
}  // namespace tandem::kernels
