// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/ops.h"

namespace tandem::kernels::cpu {

void linear_pack(const Exec& exec, Tensor w, const LinearWeight& packed) {
  auto* out = static_cast<bf16*>(packed.data);
  const int64_t panel_stride = packed.k * kPanelColumns;
  exec.parallel_for(gemm_panels(packed.n), 8, [&](int64_t begin, int64_t end) {
    const int64_t column = begin * kPanelColumns;
    gemm_pack({.w = w.row<bf16>(column),
               .row_stride = w.stride[0],
               .n = std::min(packed.n, end * kPanelColumns) - column,
               .k = packed.k,
               .panels = out + begin * panel_stride,
               .panel_stride = panel_stride});
  });
}

void linear(const Exec& exec, const LinearArgs& args) {
  const ScratchScope scope(*exec.scratch);
  const int64_t rows = args.x.size(0), n = args.weight.n, k = args.weight.k;
  auto* x = exec.scratch->take<float>(rows * k);
  exec.parallel_for(rows, std::max<int64_t>(1, 65536 / k), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) expand_row(args.x.row<bf16>(t), k, x + t * k);
  });

  const auto* panels = static_cast<const bf16*>(args.weight.data);
  const int64_t row_blocks = (rows + kBlockRows - 1) / kBlockRows;
  const int64_t column_blocks = (n + kBlockColumns - 1) / kBlockColumns;
  const auto one_block = [&](int64_t item) {
    const int64_t row = item / column_blocks * kBlockRows;
    const int64_t column = item % column_blocks * kBlockColumns;
    const int64_t columns = std::min(kBlockColumns, n - column);
    const int block_rows = static_cast<int>(std::min<int64_t>(kBlockRows, rows - row));
    alignas(64) float c[kBlockRows * kBlockColumns];
    gemm_block({.x = x + row * k,
                .x_stride = k,
                .rows = block_rows,
                .k = k,
                .panels = panels + column * k,
                .panel_count = static_cast<int>(gemm_panels(columns)),
                .c = c});
    for (int64_t r = 0; r < block_rows; ++r) {
      const float* from = c + r * kBlockColumns;
      if (args.y.dtype == DType::kBf16) {
        round_row(from, columns, args.y.row<bf16>(row + r) + column);
      } else {
        std::memcpy(args.y.row<float>(row + r) + column, from,
                    static_cast<size_t>(columns) * sizeof(float));
      }
    }
  };
  const int64_t fma_per_block = std::min<int64_t>(rows, kBlockRows) * kBlockColumns * k;
  exec.parallel_for(row_blocks * column_blocks, gemm_grain(fma_per_block),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t item = begin; item < end; ++item) one_block(item);
                    });
}

}  // namespace tandem::kernels::cpu
