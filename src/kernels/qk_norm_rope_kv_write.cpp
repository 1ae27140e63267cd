// SPDX-License-Identifier: Apache-2.0
#include "kernels/qk_norm_rope_kv_write.h"

#include "kernels/check_tensor.h"
#include "kernels/cpu/ops.h"

namespace tandem::kernels {

void qk_norm_rope_kv_write(const Exec& exec, const QkNormRopeKvWriteArgs& args) {
  const int64_t rows = args.qkv.size(0), pages = args.k_pages.size(0);
  const int64_t kv_heads = args.k_pages.size(1), page_tokens = args.k_pages.size(2);
  const int64_t head_dim = args.k_pages.size(3);
  CHECK(
      args.q_heads >= 1 && kv_heads >= 1 && page_tokens >= 1 && head_dim >= 8 && head_dim % 8 == 0,
      "Hq {} pages {}", args.q_heads, args.k_pages.describe());
  check_tensor("qkv", exec, args.qkv, DType::kBf16,
               {rows, (args.q_heads + 2 * kv_heads) * head_dim});
  check_tensor("q_weight", exec, args.q_weight, DType::kBf16, {head_dim});
  check_tensor("k_weight", exec, args.k_weight, DType::kBf16, {head_dim});
  check_tensor("rope", exec, args.rope, DType::kF32, {args.rope.size(0), head_dim});
  check_tensor("positions", exec, args.positions, DType::kI32, {rows});
  check_tensor("slots", exec, args.slots, DType::kI32, {rows});
  check_tensor("k_pages", exec, args.k_pages, DType::kBf16,
               {pages, kv_heads, page_tokens, head_dim});
  check_tensor("v_pages", exec, args.v_pages, DType::kBf16,
               {pages, kv_heads, page_tokens, head_dim});
  if (rows == 0) return;
  switch (exec.device.kind) {
    case DeviceKind::kCpu:
      return cpu::qk_norm_rope_kv_write(exec, args);
    case DeviceKind::kCuda:
      CHECK(false, "this build has no CUDA kernels");
  }
}

}  // namespace tandem::kernels
