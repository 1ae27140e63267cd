// SPDX-License-Identifier: Apache-2.0
#include "kernels/qk_norm_rope_kv_write.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/qk_norm_rope_kv_write.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::cpu::HWY_NAMESPACE {
namespace {

// y = rope(norm(x) * w) of one head; y may be x. rope: cos [D/2], then sin [D/2].
void norm_rope_head(const bf16* x, const bf16* w, const float* rope, int64_t head_dim, float eps,
                    bf16* y) {
  const F32 d;
  const int64_t half = head_dim / 2;
  // A half that is no multiple of the vector ends in single values.
  const int64_t whole = half / kLanes * kLanes;
  VF sum_a = hn::Zero(d), sum_b = sum_a;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const VF a = load_bf16(x + i), b = load_bf16(x + half + i);
    sum_a = hn::MulAdd(a, a, sum_a);
    sum_b = hn::MulAdd(b, b, sum_b);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum_a, sum_b)));
  for (int64_t i = whole; i < half; ++i) {
    const auto a = static_cast<float>(x[i]), b = static_cast<float>(x[half + i]);
    sum += a * a + b * b;
  }
  const float inverse = 1.0F / std::sqrt(sum / static_cast<float>(head_dim) + eps);
  const VF scale = hn::Set(d, inverse);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const VF a = hn::Mul(hn::Mul(load_bf16(x + i), scale), load_bf16(w + i));
    const VF b = hn::Mul(hn::Mul(load_bf16(x + half + i), scale), load_bf16(w + half + i));
    const VF cos = hn::LoadU(d, rope + i), sin = hn::LoadU(d, rope + half + i);
    store_bf16(hn::NegMulAdd(b, sin, hn::Mul(a, cos)), y + i);
    store_bf16(hn::MulAdd(a, sin, hn::Mul(b, cos)), y + half + i);
  }
  for (int64_t i = whole; i < half; ++i) {
    const float a = static_cast<float>(x[i]) * inverse * static_cast<float>(w[i]);
    const float b = static_cast<float>(x[half + i]) * inverse * static_cast<float>(w[half + i]);
    y[i] = bf16(a * rope[i] - b * rope[half + i]);
    y[half + i] = bf16(b * rope[i] + a * rope[half + i]);
  }
}

}  // namespace
}  // namespace tandem::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::kernels::cpu {

HWY_EXPORT(norm_rope_head);

void qk_norm_rope_kv_write(const Exec& exec, const QkNormRopeKvWriteArgs& args) {
  const int64_t kv_heads = args.k_pages.size(1), page_tokens = args.k_pages.size(2);
  const int64_t head_dim = args.k_pages.size(3), slot_count = args.k_pages.size(0) * page_tokens;
  const auto* positions = args.positions.as<int32_t>();
  const auto* slots = args.slots.as<int32_t>();
  const auto one_row = [&](int64_t t) {
    CHECK(0 <= positions[t] && positions[t] < args.rope.size(0), "position {} of row {}, P {}",
          positions[t], t, args.rope.size(0));
    CHECK(0 <= slots[t] && slots[t] < slot_count, "slot {} of row {}, {} slots", slots[t], t,
          slot_count);
    const float* rope = args.rope.row<float>(positions[t]);
    bf16* head = args.qkv.row<bf16>(t);
    for (int64_t h = 0; h < args.q_heads; ++h, head += head_dim) {
      HWY_DYNAMIC_DISPATCH(norm_rope_head)
      (head, args.q_weight.as<bf16>(), rope, head_dim, args.eps, head);
    }
    const int64_t page = slots[t] / page_tokens, offset = slots[t] % page_tokens * head_dim;
    const int64_t head_stride = page_tokens * head_dim;
    bf16* k = args.k_pages.row<bf16>(page) + offset;
    bf16* v = args.v_pages.row<bf16>(page) + offset;
    for (int64_t h = 0; h < kv_heads; ++h, head += head_dim) {
      HWY_DYNAMIC_DISPATCH(norm_rope_head)
      (head, args.k_weight.as<bf16>(), rope, head_dim, args.eps, k + h * head_stride);
    }
    for (int64_t h = 0; h < kv_heads; ++h, head += head_dim) {
      std::memcpy(static_cast<void*>(v + h * head_stride), head,
                  static_cast<size_t>(head_dim) * sizeof(bf16));
    }
  };
  exec.parallel_for(args.qkv.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) one_row(t);
  });
}

}  // namespace tandem::kernels::cpu
#endif  // HWY_ONCE
