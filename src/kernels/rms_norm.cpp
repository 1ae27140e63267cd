// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.h"

#include "kernels/check_tensor.h"
#include "kernels/cpu/ops.h"

namespace tandem::kernels {

void rms_norm(const Exec& exec, const RmsNormArgs& args) {
  const int64_t rows = args.x.size(0), hidden = args.x.size(1);
  CHECK(hidden >= 8 && hidden % 8 == 0, "H {}", hidden);
  check_tensor("x", exec, args.x, DType::kBf16, {rows, hidden});
  check_tensor("weight", exec, args.weight, DType::kBf16, {hidden});
  check_tensor("y", exec, args.y, DType::kBf16, {rows, hidden});
  if (args.residual.data != nullptr) {
    check_tensor("residual", exec, args.residual, DType::kBf16, {rows, hidden});
  }
  if (rows == 0) return;
  switch (exec.device.kind) {
    case DeviceKind::kCpu:
      return cpu::rms_norm(exec, args);
    case DeviceKind::kCuda:
      CHECK(false, "this build has no CUDA kernels");
  }
}

}  // namespace tandem::kernels
