// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include "kernels/check_tensor.h"
#include "kernels/cpu/ops.h"

namespace tandem::kernels {

void embedding(const Exec& exec, const EmbeddingArgs& args) {
  const int64_t rows = args.tokens.size(0), hidden = args.table.size(1);
  check_tensor("tokens", exec, args.tokens, DType::kI32, {rows});
  check_tensor("table", exec, args.table, DType::kBf16, {args.table.size(0), hidden});
  check_tensor("y", exec, args.y, DType::kBf16, {rows, hidden});
  if (rows == 0) return;
  switch (exec.device.kind) {
    case DeviceKind::kCpu:
      return cpu::embedding(exec, args);
    case DeviceKind::kCuda:
      CHECK(false, "this build has no CUDA kernels");
  }
}

}  // namespace tandem::kernels
