// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.h"

#include <cmath>

#include "kernels/cpu/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::cpu::HWY_NAMESPACE {
namespace {

// One row. The 4 chains hide the latency of the add; their number is part of the result's bits.
void rms_norm_row(const bf16* x, bf16* residual, const bf16* w, bf16* y, int64_t hidden,
                  float eps) {
  const F32 d;
  const bf16* normed = x;
  if (residual != nullptr) {
    for (int64_t i = 0; i < hidden; i += kLanes) {
      store_bf16(hn::Add(load_bf16(residual + i), load_bf16(x + i)), residual + i);
    }
    normed = residual;
  }
  VF sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 4 * kLanes <= hidden; i += 4 * kLanes) {
    const VF a = load_bf16(normed + i), b = load_bf16(normed + i + kLanes);
    const VF c = load_bf16(normed + i + 2 * kLanes), e = load_bf16(normed + i + 3 * kLanes);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
    sum2 = hn::MulAdd(c, c, sum2);
    sum3 = hn::MulAdd(e, e, sum3);
  }
  for (; i < hidden; i += kLanes) {
    const VF a = load_bf16(normed + i);
    sum0 = hn::MulAdd(a, a, sum0);
  }
  const VF sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  const float mean = hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(hidden);
  const VF scale = hn::Set(d, 1.0F / std::sqrt(mean + eps));
  for (i = 0; i < hidden; i += kLanes) {
    store_bf16(hn::Mul(hn::Mul(load_bf16(normed + i), scale), load_bf16(w + i)), y + i);
  }
}

}  // namespace
}  // namespace tandem::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::kernels::cpu {

HWY_EXPORT(rms_norm_row);

void rms_norm(const Exec& exec, const RmsNormArgs& args) {
  const bool add = args.residual.data != nullptr;
  exec.parallel_for(args.x.size(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      HWY_DYNAMIC_DISPATCH(rms_norm_row)
      (args.x.row<bf16>(t), add ? args.residual.row<bf16>(t) : nullptr, args.weight.as<bf16>(),
       args.y.row<bf16>(t), args.x.size(1), args.eps);
    }
  });
}

}  // namespace tandem::kernels::cpu
#endif  // HWY_ONCE
