// SPDX-License-Identifier: Apache-2.0
#include "kernels/router.h"

#include "kernels/check_tensor.h"
#include "kernels/cpu/ops.h"

namespace tandem::kernels {

void router(const Exec& exec, const RouterArgs& args) {
  const int64_t rows = args.logits.size(0), experts = args.logits.size(1);
  const int64_t picks = args.experts.size(1);
  CHECK(1 <= picks && picks <= experts && experts <= kRouterExpertsMax && picks <= kRouterPicksMax,
        "K {} E {}", picks, experts);
  check_tensor("logits", exec, args.logits, DType::kF32, {rows, experts});
  check_tensor("experts", exec, args.experts, DType::kI32, {rows, picks});
  check_tensor("weights", exec, args.weights, DType::kF32, {rows, picks});
  check_tensor("expert_begin", exec, args.expert_begin, DType::kI32, {experts + 1});
  check_tensor("slots", exec, args.slots, DType::kI32, {rows * picks});
  check_tensor("slot_picks", exec, args.slot_picks, DType::kI32, {rows * picks});
  switch (exec.device.kind) {
    case DeviceKind::kCpu:
      return cpu::router(exec, args);
    case DeviceKind::kCuda:
      CHECK(false, "this build has no CUDA kernels");
  }
}

}  // namespace tandem::kernels
