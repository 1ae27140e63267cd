// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kDepth = 256;  // k of one pass: a panel's 8 KiB and a tile's 6 KiB fit L1
constexpr int kHalf = 8 / kLanes;

// One register tile: kRows rows times kPanels panels over `depth` values of k, added onto c.
// x [kRows, depth], panels [kPanels][depth][16], c [kRows, 16 * kPanels].
template <int kRows, int kPanels>
HWY_INLINE void tile(const float* HWY_RESTRICT x, int64_t x_stride, int64_t depth,
                     const bf16* HWY_RESTRICT panels, int64_t panel_stride, float* HWY_RESTRICT c,
                     bool first) {
  constexpr int kVectors = 2 * kHalf * kPanels;
  const F32 d;
  VF acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = first ? hn::Zero(d) : hn::LoadU(d, c + r * kBlockColumns + v * kLanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int p = 0; p < kPanels; ++p) {
      for (int h = 0; h < kHalf; ++h) {
        const VU pairs = load_pairs(panels + p * panel_stride + k * kPanelColumns + 2 * h * kLanes);
        const VF low = first_of_pairs(pairs), high = second_of_pairs(pairs);
        const int v = 2 * kHalf * p + h;
        // Both halves of a row before the next: one x at a time leaves 12 of 16 registers to acc.
        for (int r = 0; r < kRows; ++r) {
          const VF xk = hn::Set(d, x[r * x_stride + k]);
          acc[r][v] = hn::MulAdd(low, xk, acc[r][v]);
          acc[r][v + kHalf] = hn::MulAdd(high, xk, acc[r][v + kHalf]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(acc[r][v], d, c + r * kBlockColumns + v * kLanes);
    }
  }
}

struct Pass {
  const float* x;
  int64_t x_stride, depth;
  const bf16* panels;
  int64_t panel_stride;
  int panel_count;
  bool first;
};

// All panels of a pass for kRows rows. kPanels at a time keep at least 8 chains in flight (latency
// 4 times 2 units); what is left over goes one panel at a time.
template <int kRows, int kPanels>
void tile_row(const Pass& pass, float* c) {
  int p = 0;
  for (; p + kPanels <= pass.panel_count; p += kPanels) {
    tile<kRows, kPanels>(pass.x, pass.x_stride, pass.depth, pass.panels + p * pass.panel_stride,
                         pass.panel_stride, c + p * kPanelColumns, pass.first);
  }
  for (; kPanels > 1 && p < pass.panel_count; ++p) {
    tile<kRows, 1>(pass.x, pass.x_stride, pass.depth, pass.panels + p * pass.panel_stride,
                   pass.panel_stride, c + p * kPanelColumns, pass.first);
  }
}

void rest_tile(int rows, const Pass& pass, float* c) {
  switch (rows) {
    case 1:
      return tile_row<1, 4>(pass, c);
    case 2:
      return tile_row<2, 2>(pass, c);
    case 3:
      return tile_row<3, 2>(pass, c);
    case 4:
      return tile_row<4, 1>(pass, c);
    case 5:
      return tile_row<5, 1>(pass, c);
    default:
      return;
  }
}

void block(const GemmBlock& args) {
  constexpr int kTileRows = 6;
  const int whole = args.rows / kTileRows * kTileRows;
  for (int64_t k = 0; k == 0 || k < args.k; k += kDepth) {
    Pass pass{.x = args.x + k,
              .x_stride = args.x_stride,
              .depth = std::min(kDepth, args.k - k),
              .panels = args.panels + k * kPanelColumns,
              .panel_stride = args.k * kPanelColumns,
              .panel_count = args.panel_count,
              .first = k == 0};
    // One panel at a time over all row tiles: it stays in L1.
    for (int p = 0; whole > 0 && p < args.panel_count; ++p) {
      for (int r = 0; r < whole; r += kTileRows) {
        tile<kTileRows, 1>(pass.x + r * pass.x_stride, pass.x_stride, pass.depth,
                           pass.panels + p * pass.panel_stride, pass.panel_stride,
                           args.c + r * kBlockColumns + p * kPanelColumns, pass.first);
      }
    }
    pass.x += whole * pass.x_stride;
    rest_tile(args.rows - whole, pass, args.c + whole * kBlockColumns);
  }
}

void expand(const bf16* x, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(load_bf16(x + i), F32(), y + i);
  for (; i < count; ++i) y[i] = static_cast<float>(x[i]);
}

void round(const float* x, int64_t count, bf16* y) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_bf16(hn::LoadU(F32(), x + i), y + i);
  for (; i < count; ++i) y[i] = bf16(x[i]);
}

}  // namespace
}  // namespace tandem::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::kernels::cpu {

HWY_EXPORT(block);
HWY_EXPORT(expand);
HWY_EXPORT(round);

void gemm_block(const GemmBlock& args) {
  HWY_DYNAMIC_DISPATCH(block)(args);
}
void expand_row(const bf16* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(expand)(x, count, y);
}
void round_row(const float* x, int64_t count, bf16* y) {
  HWY_DYNAMIC_DISPATCH(round)(x, count, y);
}

int64_t gemm_grain(int64_t fma_per_item) {
  constexpr int64_t kFmaPerPiece = 1 << 18;
  return std::max<int64_t>(1, kFmaPerPiece / std::max<int64_t>(1, fma_per_item));
}

void gemm_pack(const GemmPack& args) {
  for (int64_t p = 0; p < gemm_panels(args.n); ++p) {
    bf16* panel = args.panels + p * args.panel_stride;
    std::memset(static_cast<void*>(panel), 0,
                static_cast<size_t>(args.k * kPanelColumns) * sizeof(bf16));
    const int64_t columns = std::min(kPanelColumns, args.n - p * kPanelColumns);
    for (int64_t j = 0; j < columns; ++j) {
      const bf16* row = args.w + (p * kPanelColumns + j) * args.row_stride;
      const int64_t place = 2 * (j % 8) + j / 8;
      for (int64_t k = 0; k < args.k; ++k) panel[k * kPanelColumns + place] = row[k];
    }
  }
}

}  // namespace tandem::kernels::cpu
#endif  // HWY_ONCE
