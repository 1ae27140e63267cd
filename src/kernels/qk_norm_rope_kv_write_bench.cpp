// SPDX-License-Identifier: Apache-2.0
#include "kernels/qk_norm_rope_kv_write.h"

#include "kernels/bench_support.h"
#include "kernels/cases.h"

namespace tandem::kernels {

void bench_qk_norm_rope_kv_write(const OpBench& b) {
  for (const HeadsCase& c : kHeadsCases) {
    if (!c.bench || !b.report.wants("kernels/qk_norm_rope_kv_write", c.name)) continue;
    const int64_t width = (c.q_heads + 2 * c.kv_heads) * c.head_dim,
                  pages = c.t / c.page_tokens + 1;
    TestTensor qkv(DType::kBf16, {c.t, width}), rope(DType::kF32, {c.t, c.head_dim});
    TestTensor w(DType::kBf16, {c.head_dim});
    const TestTensor rows(DType::kI32, {c.t});
    const TestTensor k(DType::kBf16, {pages, c.kv_heads, c.page_tokens, c.head_dim});
    const TestTensor v(DType::kBf16, {pages, c.kv_heads, c.page_tokens, c.head_dim});
    Rng rng(1);
    qkv.fill_normal(rng);
    rope.fill_normal(rng);
    w.fill_normal(rng);
    for (int64_t t = 0; t < c.t; ++t) rows.view().as<int32_t>()[t] = static_cast<int32_t>(t);
    const bench::Timing timing = bench::measure([&] {
      qk_norm_rope_kv_write(b.exec.exec, {.qkv = qkv,
                                          .q_weight = w,
                                          .k_weight = w,
                                          .rope = rope,
                                          .positions = rows,
                                          .slots = rows,
                                          .k_pages = k,
                                          .v_pages = v,
                                          .q_heads = c.q_heads});
    });
    const double bytes =
        4 * static_cast<double>(c.t * width) + 4 * static_cast<double>(c.t * c.head_dim);
    add_row(b, "kernels/qk_norm_rope_kv_write", c.name, 0, bytes, timing);
  }
}

}  // namespace tandem::kernels
