// SPDX-License-Identifier: Apache-2.0
// The matrix product under linear and moe: a block of rows times panels of packed weights.
//
// Every output element is one chain of fused multiply-adds over k = 0, 1, …, K-1 in f32, started at
// +0. Vector lanes lie over the output columns, so how rows and columns are cut into blocks, tiles
// and threads never changes a bit: that is what makes the ops above it batch-invariant.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tandem::kernels::cpu {

// Weights [N,K] lie in panels [ceil(N/16)][K][16] bf16; within a panel's row, columns j and j+8
// are neighbours, so that one 32-bit lane holds both and expands with one shift and one mask.
// Columns past N are zero.
constexpr int64_t kPanelColumns = 16;
constexpr int kPanelsMax = 4;   // of one block: 64 columns
constexpr int kBlockRows = 48;  // 8 tiles of 6 rows: their x stays in the second-level cache
constexpr int64_t kBlockColumns = kPanelColumns * kPanelsMax;

constexpr int64_t gemm_panels(int64_t n) {
  return (n + kPanelColumns - 1) / kPanelColumns;
}

struct GemmPack {
  const bf16* w = nullptr;  // [N,K]
  int64_t row_stride = 0;
  int64_t n = 0, k = 0;
  bf16* panels = nullptr;
  int64_t panel_stride = 0;  // elements from one panel to the next, >= 16 K
};
void gemm_pack(const GemmPack& args);

struct GemmBlock {
  const float* x = nullptr;  // [rows,K]
  int64_t x_stride = 0;
  int rows = 0;  // 1 … kBlockRows
  int64_t k = 0;
  const bf16* panels = nullptr;  // [panel_count][K][16]
  int panel_count = 0;           // 1 … kPanelsMax
  float* c = nullptr;            // [rows, kBlockColumns]: the first 16 * panel_count columns
};
void gemm_block(const GemmBlock& args);

// How many blocks of work make a piece worth handing to a thread (about 10 us).
int64_t gemm_grain(int64_t fma_per_item);

void expand_row(const bf16* x, int64_t count, float* y);  // exact
void round_row(const float* x, int64_t count, bf16* y);   // nearest even

}  // namespace tandem::kernels::cpu
