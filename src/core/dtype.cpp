// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

namespace tandem {

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBf16:
      return "bf16";
    case DType::kE4m3:
      return "e4m3";
    case DType::kE8m0:
      return "e8m0";
    case DType::kI64:
      return "i64";
    case DType::kI32:
      return "i32";
    case DType::kU8:
      return "u8";
    case DType::kBool:
      return "bool";
  }
  return "unknown";
}

}  // namespace tandem
