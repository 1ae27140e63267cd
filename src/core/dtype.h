// SPDX-License-Identifier: Apache-2.0
// Element types and the bf16 value type. For everybody who touches numbers.
// Source: safetensors dtype names; OCP 8-bit floating point and microscaling formats for e4m3 and
// e8m0.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/check.h"

namespace tandem {

enum class DType : uint8_t { kF64, kF32, kF16, kBf16, kE4m3, kE8m0, kI64, kI32, kU8, kBool };

// Bytes of one element. Packed sub-byte formats (e2m1) are stored as kU8, two to a byte.
constexpr size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBf16:
      return 2;
    default:
      return 1;
  }
}

[[nodiscard]] std::string_view dtype_name(DType dtype);  // "bf16", "e4m3", …

// bfloat16: the upper half of a float. Rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40U);  // a quiet NaN that keeps its sign
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
    }
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  friend bool operator==(bf16 a, bf16 b) { return a.bits == b.bits; }
};
static_assert(sizeof(bf16) == 2);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBf16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};

}  // namespace tandem
