// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include "kernels/bench_support.h"
#include "kernels/cases.h"

namespace tandem::kernels {
namespace {

void bench_case(const OpBench& b, const AttentionCase& c) {
  if (!c.bench || !b.report.wants("kernels/attention", c.name)) return;
  const int64_t pages = (c.rows + c.cached + c.page_tokens - 1) / c.page_tokens;
  TestTensor q(DType::kBf16, {c.rows, c.q_heads * c.head_dim});
  TestTensor k(DType::kBf16, {pages, c.kv_heads, c.page_tokens, c.head_dim});
  TestTensor v(DType::kBf16, {pages, c.kv_heads, c.page_tokens, c.head_dim});
  const TestTensor y(DType::kBf16, {c.rows, c.q_heads * c.head_dim}), ids(DType::kI32, {pages});
  const TestTensor rows(DType::kI32, {2}), positions(DType::kI32, {1}), spans(DType::kI32, {2});
  Rng rng(1);
  q.fill_normal(rng);
  k.fill_normal(rng);
  v.fill_normal(rng);
  for (int64_t i = 0; i < pages; ++i) ids.view().as<int32_t>()[i] = static_cast<int32_t>(i);
  rows.view().as<int32_t>()[1] = static_cast<int32_t>(c.rows);
  positions.view().as<int32_t>()[0] = static_cast<int32_t>(c.cached);
  spans.view().as<int32_t>()[1] = static_cast<int32_t>(pages);
  const bench::Timing timing = bench::measure([&] {
    attention(b.exec.exec, {.q = q,
                            .k_pages = k,
                            .v_pages = v,
                            .seq_rows = rows,
                            .seq_positions = positions,
                            .seq_pages = spans,
                            .page_ids = ids,
                            .y = y,
                            .q_heads = c.q_heads,
                            .scale = 0.088F});
  });
  double pairs = 0;
  for (int64_t t = 0; t < c.rows; ++t) pairs += static_cast<double>(c.cached + t + 1);
  const auto width = static_cast<double>(c.q_heads * c.head_dim);
  const auto kv_width = static_cast<double>(c.kv_heads * c.head_dim);
  add_row(b, "kernels/attention", c.name, 4 * width * pairs,
          4 * kv_width * static_cast<double>(c.rows + c.cached), timing);
}

}  // namespace

void bench_attention(const OpBench& b) {
  for (const AttentionCase& c : kAttentionBenchCases) bench_case(b, c);
}

}  // namespace tandem::kernels
