// SPDX-License-Identifier: Apache-2.0
#include "kernels/silu_mul.h"

#include "kernels/check_tensor.h"
#include "kernels/cpu/ops.h"

namespace tandem::kernels {

void silu_mul(const Exec& exec, const SiluMulArgs& args) {
  const int64_t rows = args.y.size(0), width = args.y.size(1);
  CHECK(width >= 8 && width % 8 == 0, "I {}", width);
  check_tensor("gate_up", exec, args.gate_up, DType::kBf16, {rows, 2 * width});
  check_tensor("y", exec, args.y, DType::kBf16, {rows, width});
  if (rows == 0) return;
  switch (exec.device.kind) {
    case DeviceKind::kCpu:
      return cpu::silu_mul(exec, args);
    case DeviceKind::kCuda:
      CHECK(false, "this build has no CUDA kernels");
  }
}

}  // namespace tandem::kernels
