// SPDX-License-Identifier: Apache-2.0
// The bound, u = 2^-24, L keys, S = max_j scale sum_d |q_d k_d|. A score is a chain of at most D/4
// steps, a lane tree of 3, the product with scale: error (D/4 + 7) u S. exp(s - m) turns an
// absolute error of its argument into a relative one: that of the score, u |s - m| <= 2 S u from
// the subtraction, and 4 u of exp itself. The corrections at each of L/64 blocks are such
// exponentials whose arguments add up to at most 2 S: 6 u a block. The sums over keys are chains
// of L steps in numerator and denominator alike. So a weight p_j / sum p has relative error at
// most 2 ((D/4 + 9) S + L + L/10 + 24) u, and the sum of weights times values that much of max
// |v|. The store adds 2^-8 of the result.
#include "kernels/attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cases.h"
#include "kernels/test_support.h"

namespace tandem::kernels {
namespace {

// One sequence of cached + rows tokens in scattered pages; unused slots hold NaN.
struct Problem {
  AttentionCase c;
  int64_t length, page_count;
  float scale;
  TestTensor q, k, v, page_ids;

  Problem(const AttentionCase& of, uint64_t seed, int64_t page_tokens = 0)
      : c(of),
        length(c.rows + c.cached),
        page_count(0),
        scale(1.0F / std::sqrt(static_cast<float>(c.head_dim))),
        q(DType::kBf16, {c.rows, c.q_heads * c.head_dim}),
        k(make_pages(of, page_tokens)),
        v(make_pages(of, page_tokens)),
        page_ids(DType::kI32, {k.view().size(0) - 1}) {
    if (page_tokens != 0) c.page_tokens = page_tokens;
    page_count = page_ids.view().size(0);
    Rng rng(seed);
    for (int64_t i = 0; i < page_count; ++i) {  // a scrambled order, page 0 unused
      page_ids.view().as<int32_t>()[i] = static_cast<int32_t>(page_count - i);
    }
    std::swap(page_ids.view().as<int32_t>()[0], page_ids.view().as<int32_t>()[page_count / 2]);
    k.fill_bytes(0xff);
    v.fill_bytes(0xff);
    q.fill_normal(rng, 2.0F);
    for (int64_t position = 0; position < length; ++position) {
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        for (int64_t i = 0; i < c.head_dim; ++i) {
          k.view().as<bf16>()[at(position, h) + i] = bf16(rng.normal());
          v.view().as<bf16>()[at(position, h) + i] = bf16(rng.normal());
        }
      }
    }
  }
  static TestTensor make_pages(const AttentionCase& c, int64_t page_tokens) {
    if (page_tokens == 0) page_tokens = c.page_tokens;
    const int64_t pages = (c.rows + c.cached + page_tokens - 1) / page_tokens + 2;
    return {DType::kBf16, {pages, c.kv_heads, page_tokens, c.head_dim}};
  }
  [[nodiscard]] int64_t at(int64_t position, int64_t kv_head) const {
    const auto page = static_cast<int64_t>(page_ids.at(position / c.page_tokens));
    return ((page * c.kv_heads + kv_head) * c.page_tokens + position % c.page_tokens) * c.head_dim;
  }
};

// The rows cut into chunks, each a sequence of the same pages: `chunks` in one call.
void run(const Problem& p, const std::vector<int64_t>& chunks, const Tensor& y,
         TestTeam* team = nullptr) {
  const auto count = static_cast<int64_t>(chunks.size());
  const TestTensor rows(DType::kI32, {count + 1}), positions(DType::kI32, {count});
  const TestTensor pages(DType::kI32, {count + 1}), ids(DType::kI32, {count * p.page_count});
  int64_t row = 0;
  for (int64_t i = 0; i < count; ++i) {
    rows.view().as<int32_t>()[i] = static_cast<int32_t>(row);
    positions.view().as<int32_t>()[i] = static_cast<int32_t>(p.c.cached + row);
    pages.view().as<int32_t>()[i] = static_cast<int32_t>(i * p.page_count);
    std::copy_n(p.page_ids.view().as<int32_t>(), p.page_count,
                ids.view().as<int32_t>() + i * p.page_count);
    row += chunks[static_cast<size_t>(i)];
  }
  rows.view().as<int32_t>()[count] = static_cast<int32_t>(row);
  pages.view().as<int32_t>()[count] = static_cast<int32_t>(count * p.page_count);
  TestExec exec(attention_scratch_bytes({}, count), team);
  attention(exec.exec, {.q = p.q,
                        .k_pages = p.k,
                        .v_pages = p.v,
                        .seq_rows = rows,
                        .seq_positions = positions,
                        .seq_pages = pages,
                        .page_ids = ids,
                        .y = y,
                        .q_heads = p.c.q_heads,
                        .scale = p.scale});
}

void compare_row(const Problem& p, int64_t row, int64_t head, const TestTensor& y, Worst& worst) {
  const int64_t d = p.c.head_dim, keys = p.c.cached + row + 1;
  const int64_t kv_head = head / (p.c.q_heads / p.c.kv_heads);
  const int64_t from = (row * p.c.q_heads + head) * d;
  std::vector<double> scores(static_cast<size_t>(keys));
  double largest_score = 0, largest_value = 0;
  for (int64_t j = 0; j < keys; ++j) {
    double absolute = 0;
    for (int64_t i = 0; i < d; ++i) {
      const double product = p.q.at(from + i) * p.k.at(p.at(j, kv_head) + i);
      scores[static_cast<size_t>(j)] += product * double{p.scale};
      absolute += std::abs(product) * double{p.scale};
      largest_value = std::max(largest_value, std::abs(p.v.at(p.at(j, kv_head) + i)));
    }
    largest_score = std::max(largest_score, absolute);
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& s : scores) sum += s = std::exp(s - highest);
  const auto length = static_cast<double>(keys);
  const double inner = 2 * ((static_cast<double>(d) / 4 + 9) * largest_score + 1.1 * length + 24) *
                       0x1p-24 * largest_value;
  for (int64_t i = 0; i < d; ++i) {
    double want = 0;
    for (int64_t j = 0; j < keys; ++j) {
      want += scores[static_cast<size_t>(j)] / sum * p.v.at(p.at(j, kv_head) + i);
    }
    worst.see(from + i, y.at(from + i), want, 1.01 * (0x1p-8 * std::abs(want) + inner));
  }
}

TEST(Attention, WithinTheDerivedBoundAndRepeatsBitwise) {
  for (const AttentionCase& c : kAttentionCases) {
    const Problem p(c, 1);
    TestTensor y(DType::kBf16, {c.rows, c.q_heads * c.head_dim});
    TestTensor again(DType::kBf16, {c.rows, c.q_heads * c.head_dim});
    run(p, {c.rows}, y);
    Worst worst;
    for (int64_t t = 0; t < c.rows; ++t) {
      for (int64_t h = 0; h < c.q_heads; ++h) compare_row(p, t, h, y, worst);
    }
    EXPECT_TRUE(worst.ok()) << c.name << ": " << worst.text();
    run(p, {c.rows}, again.fill_bytes(0x7f));
    EXPECT_TRUE(y.same_bits(again) && y.sentinels_intact()) << c.name;
  }
}

TEST(Attention, ChunksPagesAndThreadsChangeNoBit) {
  const AttentionCase c{"chunks", 170, 30, 6, 2, 32, 16};
  const Problem p(c, 2);
  TestTensor whole(DType::kBf16, {c.rows, c.q_heads * c.head_dim});
  run(p, {c.rows}, whole);
  TestTeam team(3);
  const auto same = [&](const Problem& of, const std::vector<int64_t>& chunks, TestTeam* on) {
    TestTensor y(DType::kBf16, {c.rows, c.q_heads * c.head_dim});
    run(of, chunks, y, on);
    return y.same_bits(whole);
  };
  EXPECT_TRUE(same(p, std::vector<int64_t>(170, 1), nullptr)) << "row by row";
  EXPECT_TRUE(same(p, {1, 33, 1, 64, 1, 70}, nullptr));
  EXPECT_TRUE(same(p, {169, 1}, &team));
  EXPECT_TRUE(same(p, {c.rows}, &team));
  for (const int64_t page_tokens : {1, 7, 64, 256}) {
    EXPECT_TRUE(same(Problem(c, 2, page_tokens), {100, 70}, nullptr)) << page_tokens;
  }
}

TEST(Attention, ChunkLengthsFrom1To100ChangeNoBit) {
  const AttentionCase c{"lengths", 100, 0, 4, 2, 16, 16};
  const Problem p(c, 3);
  TestTensor whole(DType::kBf16, {c.rows, c.q_heads * c.head_dim});
  run(p, {c.rows}, whole);
  for (int64_t first = 1; first < c.rows; ++first) {
    TestTensor y(DType::kBf16, {c.rows, c.q_heads * c.head_dim});
    run(p, {first, c.rows - first}, y);
    ASSERT_TRUE(y.same_bits(whole)) << first;
  }
}

TEST(Attention, LargeScoresNeitherOverflowNorVanish) {
  const AttentionCase c{"large", 80, 0, 2, 1, 16, 16};
  Problem p(c, 4);
  for (int64_t i = 0; i < p.q.view().count(); ++i) {
    p.q.view().as<bf16>()[i] = bf16(static_cast<float>(p.q.at(i)) * 100.0F);
  }
  TestTensor y(DType::kBf16, {c.rows, c.q_heads * c.head_dim});
  run(p, {c.rows}, y);
  Worst worst;
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t h = 0; h < c.q_heads; ++h) compare_row(p, t, h, y, worst);
  }
  EXPECT_TRUE(worst.ok()) << worst.text();
}

TEST(Attention, ANanKeyOrValueShowsInTheRowsThatSeeIt) {
  for (const bool in_key : {true, false}) {
    const AttentionCase c{"nan", 90, 0, 2, 2, 16, 16};
    const Problem p(c, 5);
    const Tensor& pages = in_key ? p.k : p.v;
    for (int64_t i = 0; i < 16; ++i) pages.as<bf16>()[p.at(20, 1) + i] = bf16(NAN);
    TestTensor y(DType::kBf16, {c.rows, c.q_heads * c.head_dim});
    run(p, {20, 70}, y);
    for (int64_t t = 0; t < c.rows; ++t) {
      EXPECT_FALSE(std::isnan(y.at(t * 32))) << "head 0 never sees it";
      EXPECT_EQ(std::isnan(y.at(t * 32 + 16)), t >= 20) << in_key << " row " << t;
    }
  }
}

TEST(AttentionDeathTest, PagesThatDoNotCoverTheRowsAreRefused) {
  const AttentionCase c{"refused", 20, 0, 2, 1, 16, 16};
  Problem p(c, 6);
  const TestTensor y(DType::kBf16, {c.rows, 32});
  p.c.cached = 100;
  EXPECT_DEATH(run(p, {20}, y), "20 rows at 100");
  p.c.cached = 0;
  EXPECT_DEATH(run(p, {19}, y), "rows 0..19 of 20");
  p.page_ids.view().as<int32_t>()[0] = 99;
  EXPECT_DEATH(run(p, {20}, y), "page 99 of");
  p.c.q_heads = 3;
  EXPECT_DEATH(run(p, {20}, y), "q is bf16");
}

}  // namespace
}  // namespace tandem::kernels
