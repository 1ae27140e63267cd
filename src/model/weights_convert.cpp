// SPDX-License-Identifier: Apache-2.0
#include "model/weights_convert.h"

#include <bit>
#include <cstring>

#include "core/check.h"

namespace tandem::model {
namespace {

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16U;
  const uint32_t exponent = half >> 10U & 0x1fU;
  const uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0) {  // zero and denormals: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 0x1f ? 0xffU : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23U | mantissa << 13U);
}

bool is_non_finite(bf16 value) {
  return (value.bits & 0x7f80U) == 0x7f80U;
}

}  // namespace

bool is_convertible_to_bf16(DType stored) {
  return stored == DType::kBf16 || stored == DType::kF16 || stored == DType::kF32;
}

void convert_to_bf16(DType stored, const void* in, bf16* out, int64_t count) {
  CHECK(stored == DType::kF16 || stored == DType::kF32, "{}", dtype_name(stored));
  const auto* bytes = static_cast<const std::byte*>(in);
  for (int64_t i = 0; i < count; ++i) {
    if (stored == DType::kF32) {
      float value = 0;
      std::memcpy(&value, bytes + i * 4, sizeof(value));
      out[i] = bf16(value);
    } else {
      uint16_t half = 0;
      std::memcpy(&half, bytes + i * 2, sizeof(half));
      out[i] = bf16(half_to_float(half));
    }
  }
}

void find_non_finite(const bf16* values, int64_t count, int64_t begin, NonFinite& found) {
  constexpr int64_t kBlock = 4096;
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t end = at + kBlock < count ? at + kBlock : count;
    uint16_t any = 0;  // a plain reduction over 16-bit lanes, which the compiler vectorises
    for (int64_t i = at; i < end; ++i) {
      any = static_cast<uint16_t>(any | (is_non_finite(values[i]) ? 1U : 0U));
    }
    if (any == 0) continue;
    for (int64_t i = at; i < end; ++i) {
      if (!is_non_finite(values[i])) continue;
      if (found.count++ == 0) found.first = begin + i;
    }
  }
}

}  // namespace tandem::model
