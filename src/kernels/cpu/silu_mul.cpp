// SPDX-License-Identifier: Apache-2.0
#include "kernels/silu_mul.h"

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/silu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/silu_mul.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::cpu::HWY_NAMESPACE {
namespace {

// exp(-g) overflows to +inf below g = -88: g / inf is then the right 0. Exp is specified up to 104.
HWY_INLINE VF silu_mul(VF gate, VF up) {
  const F32 d;
  const VF exponent = hn::Min(hn::Neg(gate), hn::Set(d, 100.0F));
  const VF denominator = hn::Add(hn::Set(d, 1.0F), hn::Exp(d, exponent));
  return hn::Mul(hn::Div(gate, denominator), up);
}

void silu_row(const bf16* gate, const bf16* up, int64_t count, bf16* y) {
  for (int64_t i = 0; i < count; i += kLanes) {
    store_bf16(silu_mul(load_bf16(gate + i), load_bf16(up + i)), y + i);
  }
}

void silu_panel(const float* gate, const float* up, float* y) {
  const F32 d;
  for (int64_t i = 0; i < kPanelColumns; i += kLanes) {
    hn::StoreU(round_to_bf16(silu_mul(hn::LoadU(d, gate + i), hn::LoadU(d, up + i))), d, y + i);
  }
}

}  // namespace
}  // namespace tandem::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::kernels::cpu {

HWY_EXPORT(silu_row);
HWY_EXPORT(silu_panel);

void silu_mul_row(const bf16* gate, const bf16* up, int64_t count, bf16* y) {
  HWY_DYNAMIC_DISPATCH(silu_row)(gate, up, count, y);
}
void silu_mul_panel(const float* gate, const float* up, float* y) {
  HWY_DYNAMIC_DISPATCH(silu_panel)(gate, up, y);
}

void silu_mul(const Exec& exec, const SiluMulArgs& args) {
  const int64_t width = args.y.size(1);
  exec.parallel_for(args.y.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const bf16* gate = args.gate_up.row<bf16>(t);
      silu_mul_row(gate, gate + width, width, args.y.row<bf16>(t));
    }
  });
}

}  // namespace tandem::kernels::cpu
#endif  // HWY_ONCE
