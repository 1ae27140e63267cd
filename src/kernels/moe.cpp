// SPDX-License-Identifier: Apache-2.0
#include "kernels/moe.h"

#include <algorithm>

#include "kernels/check_tensor.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/moe_layout.h"
#include "kernels/cpu/ops.h"

namespace tandem::kernels {

size_t moe_weight_bytes(Device device, int64_t experts, int64_t hidden, int64_t intermediate) {
  CHECK(device.kind == DeviceKind::kCpu, "this build has no CUDA kernels");
  const cpu::MoeLayout layout{.hidden = hidden, .intermediate = intermediate};
  return static_cast<size_t>(experts * (layout.gate_up_size() + layout.down_size())) * sizeof(bf16);
}

size_t moe_scratch_bytes(const MoeWeight& weight, int64_t t, int64_t picks) {
  CHECK(weight.device.kind == DeviceKind::kCpu, "this build has no CUDA kernels");
  const cpu::MoeLayout layout{.hidden = weight.hidden, .intermediate = weight.intermediate};
  const int64_t slots = t * picks;
  const int64_t floats = slots * (weight.hidden + layout.intermediate_padded());
  const int64_t blocks = slots / cpu::kBlockRows + weight.experts;
  return static_cast<size_t>(floats) * sizeof(float) +
         static_cast<size_t>(blocks) * sizeof(cpu::MoeRowBlock) + 3 * 64;
}

MoeWeight moe_pack(const Exec& exec, const MoePackArgs& args) {
  const int64_t experts = args.gate.size(0), intermediate = args.gate.size(1);
  const int64_t hidden = args.gate.size(2);
  CHECK(experts >= 1 && hidden >= 1 && intermediate >= 1, "gate {}", args.gate.describe());
  check_tensor("gate", exec, args.gate, DType::kBf16, {experts, intermediate, hidden});
  check_tensor("up", exec, args.up, DType::kBf16, {experts, intermediate, hidden});
  check_tensor("down", exec, args.down, DType::kBf16, {experts, hidden, intermediate});
  const cpu::MoeLayout layout{.hidden = hidden, .intermediate = intermediate};
  auto* out = static_cast<bf16*>(args.out);
  const MoeWeight packed{.gate_up = out,
                         .down = out + experts * layout.gate_up_size(),
                         .experts = experts,
                         .hidden = hidden,
                         .intermediate = intermediate,
                         .device = exec.device};
  switch (exec.device.kind) {
    case DeviceKind::kCpu:
      cpu::moe_pack(exec, args, packed);
      break;
    case DeviceKind::kCuda:
      CHECK(false, "this build has no CUDA kernels");
  }
  return packed;
}

void moe(const Exec& exec, const MoeArgs& args) {
  const int64_t rows = args.x.size(0), picks = args.weights.size(1);
  const MoeWeight& w = args.weight;
  CHECK(w.gate_up != nullptr && w.down != nullptr && w.device == exec.device && w.experts >= 1,
        "E {} H {} I {}", w.experts, w.hidden, w.intermediate);
  check_tensor("x", exec, args.x, DType::kBf16, {rows, w.hidden});
  check_tensor("weights", exec, args.weights, DType::kF32, {rows, picks});
  check_tensor("expert_begin", exec, args.expert_begin, DType::kI32, {w.experts + 1});
  check_tensor("slots", exec, args.slots, DType::kI32, {rows * picks});
  check_tensor("slot_picks", exec, args.slot_picks, DType::kI32, {rows * picks});
  check_tensor("y", exec, args.y, DType::kBf16, {rows, w.hidden});
  if (rows == 0) return;
  CHECK(exec.scratch != nullptr);
  switch (exec.device.kind) {
    case DeviceKind::kCpu:
      return cpu::moe(exec, args);
    case DeviceKind::kCuda:
      CHECK(false, "this build has no CUDA kernels");
  }
}

}  // namespace tandem::kernels
