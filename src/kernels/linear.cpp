// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear.h"

#include "kernels/check_tensor.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/ops.h"

namespace tandem::kernels {

size_t linear_weight_bytes(Device device, int64_t n, int64_t k) {
  CHECK(device.kind == DeviceKind::kCpu, "this build has no CUDA kernels");
  return static_cast<size_t>(cpu::gemm_panels(n) * cpu::kPanelColumns * k) * sizeof(bf16);
}

size_t linear_scratch_bytes(Device device, int64_t t, int64_t k) {
  CHECK(device.kind == DeviceKind::kCpu, "this build has no CUDA kernels");
  return static_cast<size_t>(t * k) * sizeof(float) + 64;  // x in f32, rounded up by Scratch
}

LinearWeight linear_pack(const Exec& exec, Tensor w, void* out) {
  const LinearWeight packed{.data = out, .n = w.size(0), .k = w.size(1), .device = exec.device};
  CHECK(packed.n >= 1 && packed.k >= 1, "N {} K {}", packed.n, packed.k);
  check_tensor("w", exec, w, DType::kBf16, {packed.n, packed.k});
  switch (exec.device.kind) {
    case DeviceKind::kCpu:
      cpu::linear_pack(exec, w, packed);
      break;
    case DeviceKind::kCuda:
      CHECK(false, "this build has no CUDA kernels");
  }
  return packed;
}

void linear(const Exec& exec, const LinearArgs& args) {
  const int64_t rows = args.x.size(0), n = args.weight.n, k = args.weight.k;
  CHECK(args.weight.data != nullptr && args.weight.device == exec.device && n >= 1 && k >= 1,
        "N {} K {}", n, k);
  CHECK(args.y.dtype == DType::kBf16 || args.y.dtype == DType::kF32, "y {}", args.y.describe());
  check_tensor("x", exec, args.x, DType::kBf16, {rows, k});
  check_tensor("y", exec, args.y, args.y.dtype, {rows, n});
  if (rows == 0) return;
  CHECK(exec.scratch != nullptr);
  switch (exec.device.kind) {
    case DeviceKind::kCpu:
      return cpu::linear(exec, args);
    case DeviceKind::kCuda:
      CHECK(false, "this build has no CUDA kernels");
  }
}

}  // namespace tandem::kernels
