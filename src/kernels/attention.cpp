// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include "kernels/check_tensor.h"
#include "kernels/cpu/ops.h"

namespace tandem::kernels {

size_t attention_scratch_bytes(Device device, int64_t sequences) {
  CHECK(device.kind == DeviceKind::kCpu, "this build has no CUDA kernels");
  return static_cast<size_t>(sequences + 1) * sizeof(int64_t) + 64;
}

void attention(const Exec& exec, const AttentionArgs& args) {
  const int64_t rows = args.q.size(0), sequences = args.seq_positions.size(0);
  const int64_t pages = args.k_pages.size(0), kv_heads = args.k_pages.size(1);
  const int64_t page_tokens = args.k_pages.size(2), head_dim = args.k_pages.size(3);
  CHECK(kv_heads >= 1 && page_tokens >= 1 && args.q_heads >= 1 && args.q_heads % kv_heads == 0,
        "Hq {} pages {}", args.q_heads, args.k_pages.describe());
  CHECK(head_dim >= 8 && head_dim % 8 == 0 && head_dim <= 256, "D {}", head_dim);
  check_tensor("q", exec, args.q, DType::kBf16, {rows, args.q_heads * head_dim});
  check_tensor("y", exec, args.y, DType::kBf16, {rows, args.q_heads * head_dim});
  check_tensor("k_pages", exec, args.k_pages, DType::kBf16,
               {pages, kv_heads, page_tokens, head_dim});
  check_tensor("v_pages", exec, args.v_pages, DType::kBf16,
               {pages, kv_heads, page_tokens, head_dim});
  check_tensor("seq_rows", exec, args.seq_rows, DType::kI32, {sequences + 1});
  check_tensor("seq_positions", exec, args.seq_positions, DType::kI32, {sequences});
  check_tensor("seq_pages", exec, args.seq_pages, DType::kI32, {sequences + 1});
  check_tensor("page_ids", exec, args.page_ids, DType::kI32, {args.page_ids.size(0)});
  if (rows == 0) return;
  CHECK(exec.scratch != nullptr);
  switch (exec.device.kind) {
    case DeviceKind::kCpu:
      return cpu::attention(exec, args);
    case DeviceKind::kCuda:
      CHECK(false, "this build has no CUDA kernels");
  }
}

}  // namespace tandem::kernels
