// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_tile.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_tile.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::cpu::HWY_NAMESPACE {
namespace {

constexpr int kPair = 2 * kLanes;  // bf16 values that one load expands to two vectors
// Stands for "no key": its exp is 0 after any finite maximum is subtracted.
constexpr float kMasked = -1e30F;

void load_row(AttentionTile& tile, int64_t row, const bf16* q, float scale) {
  const F32 d;
  float* out = tile.q + row * tile.head_dim;
  float* acc = tile.acc + row * tile.head_dim;
  for (int64_t i = 0; i < tile.head_dim; i += kPair) {
    const VU pairs = load_pairs(q + i);
    hn::StoreU(hn::Mul(first_of_pairs(pairs), hn::Set(d, scale)), d, out + i);
    hn::StoreU(hn::Mul(second_of_pairs(pairs), hn::Set(d, scale)), d, out + i + kLanes);
    hn::StoreU(hn::Zero(d), d, acc + i);
    hn::StoreU(hn::Zero(d), d, acc + i + kLanes);
  }
  tile.maximum[row] = kMasked;
  tile.sum[row] = 0.0F;
}

// out[0..3] = the sums of the lanes of a, b, c, e, each by the same tree.
HWY_INLINE void store_four_sums(VF a, VF b, VF c, VF e, float* out) {
  const F32 d;
  const hn::Repartition<double, F32> d64;
  const VF ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const VF ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto ab64 = hn::BitCast(d64, ab), ce64 = hn::BitCast(d64, ce);
  const VF sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab64, ce64)),
                          hn::BitCast(d, hn::InterleaveUpper(d64, ab64, ce64)));
  if constexpr (kLanes == 8) {
    const hn::Half<F32> half;
    hn::StoreU(hn::Add(hn::LowerHalf(half, sums), hn::UpperHalf(half, sums)), half, out);
  } else {
    hn::StoreU(sums, d, out);
  }
}

// scores[r][j .. j+3] of kRows rows: each a chain over D in vectors of 8, then the lane tree.
template <int kRows>
HWY_INLINE void score_tile(const float* q, int64_t head_dim, const bf16* const* k, float* scores) {
  const F32 d;
  VF acc[kRows][4];
  for (auto& row : acc) {
    for (VF& a : row) a = hn::Zero(d);
  }
  for (int64_t i = 0; i < head_dim; i += kPair) {
    VF q_first[kRows], q_second[kRows];
    for (int r = 0; r < kRows; ++r) q_first[r] = hn::LoadU(d, q + r * head_dim + i);
    for (int j = 0; j < 4; ++j) {
      const VF key = first_of_pairs(load_pairs(k[j] + i));
      for (int r = 0; r < kRows; ++r) acc[r][j] = hn::MulAdd(key, q_first[r], acc[r][j]);
    }
    for (int r = 0; r < kRows; ++r) q_second[r] = hn::LoadU(d, q + r * head_dim + i + kLanes);
    for (int j = 0; j < 4; ++j) {
      const VF key = second_of_pairs(load_pairs(k[j] + i));
      for (int r = 0; r < kRows; ++r) acc[r][j] = hn::MulAdd(key, q_second[r], acc[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store_four_sums(acc[r][0], acc[r][1], acc[r][2], acc[r][3], scores + r * kKeyBlock);
  }
}

// acc = acc * correction + p v of kRows rows and kPairs * 2 vectors of D: per element one chain
// over the keys in order.
template <int kRows, int kPairs>
HWY_INLINE void value_tile(const float* p, const float* correction, const bf16* const* v,
                           int key_count, int64_t head_dim, int64_t column, float* acc) {
  const F32 d;
  constexpr int kVectors = 2 * kPairs;
  VF a[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) {
      a[r][i] = hn::Mul(hn::LoadU(d, acc + r * head_dim + column + i * kLanes),
                        hn::Set(d, correction[r]));
    }
  }
  for (int j = 0; j < key_count; ++j) {
    for (int i = 0; i < kPairs; ++i) {
      const VU pairs = load_pairs(v[j] + column + i * kPair);
      const VF first = first_of_pairs(pairs), second = second_of_pairs(pairs);
      for (int r = 0; r < kRows; ++r) {
        const VF pj = hn::Set(d, p[r * kKeyBlock + j]);
        a[r][2 * i] = hn::MulAdd(first, pj, a[r][2 * i]);
        a[r][2 * i + 1] = hn::MulAdd(second, pj, a[r][2 * i + 1]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) {
      hn::StoreU(a[r][i], d, acc + r * head_dim + column + i * kLanes);
    }
  }
}

template <int kRows>
void score_rows(AttentionTile& tile, int64_t row, const KeyBlock& keys) {
  for (int j = 0; j < keys.count; j += 4) {
    score_tile<kRows>(tile.q + row * tile.head_dim, tile.head_dim, keys.k + j,
                      tile.scores + row * kKeyBlock + j);
  }
}

template <int kRows>
void value_rows(AttentionTile& tile, int64_t row, const KeyBlock& keys) {
  const float* p = tile.scores + row * kKeyBlock;
  float* acc = tile.acc + row * tile.head_dim;
  int64_t column = 0;
  for (; column + 2 * kPair <= tile.head_dim; column += 2 * kPair) {
    value_tile<kRows, 2>(p, tile.correction + row, keys.v, keys.count, tile.head_dim, column, acc);
  }
  for (; column < tile.head_dim; column += kPair) {
    value_tile<kRows, 1>(p, tile.correction + row, keys.v, keys.count, tile.head_dim, column, acc);
  }
}

HWY_INLINE VF exp_or_nan(VF x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(F32(), x));
}

// Turns the row's scores into probabilities under the new maximum. Masked keys get 0.
void softmax_row(AttentionTile& tile, int64_t row, int keys, int padded) {
  const F32 d;
  float* s = tile.scores + row * kKeyBlock;
  std::fill(s + keys, s + padded, kMasked);
  VF highest = hn::Set(d, tile.maximum[row]);
  for (int j = 0; j < padded; j += kLanes) highest = hn::Max(highest, hn::LoadU(d, s + j));
  const float maximum = hn::GetLane(hn::MaxOfLanes(d, highest));
  VF sum = hn::Zero(d);
  for (int j = 0; j < padded; j += kLanes) {
    const VF p = exp_or_nan(hn::Sub(hn::LoadU(d, s + j), hn::Set(d, maximum)));
    hn::StoreU(p, d, s + j);
    sum = hn::Add(sum, p);
  }
  const float correction = hn::GetLane(exp_or_nan(hn::Set(d, tile.maximum[row] - maximum)));
  tile.correction[row] = correction;
  tile.sum[row] = tile.sum[row] * correction + hn::GetLane(hn::SumOfLanes(d, sum));
  tile.maximum[row] = maximum;
}

void step(AttentionTile& tile, const KeyBlock& keys, int64_t row_begin, const int* key_count) {
  constexpr int kRows = 3;  // 3 rows times 4 vectors: 12 chains in 16 registers
  const int padded = (keys.count + 7) / 8 * 8;
  int64_t row = row_begin;
  for (; row + kRows <= tile.rows; row += kRows) score_rows<kRows>(tile, row, keys);
  if (tile.rows - row == 2) score_rows<2>(tile, row, keys);
  if (tile.rows - row == 1) score_rows<1>(tile, row, keys);
  for (row = row_begin; row < tile.rows; ++row) softmax_row(tile, row, key_count[row], padded);
  for (row = row_begin; row + kRows <= tile.rows; row += kRows) value_rows<kRows>(tile, row, keys);
  if (tile.rows - row == 2) value_rows<2>(tile, row, keys);
  if (tile.rows - row == 1) value_rows<1>(tile, row, keys);
}

void store_row(const AttentionTile& tile, int64_t row, bf16* y) {
  const F32 d;
  const float* acc = tile.acc + row * tile.head_dim;
  const VF inverse = hn::Set(d, 1.0F / tile.sum[row]);
  for (int64_t i = 0; i < tile.head_dim; i += kPair) {
    // + 0 turns -0 into 0: a masked key may have touched the sign of a zero, nothing else.
    const VF first = hn::Add(hn::Mul(hn::LoadU(d, acc + i), inverse), hn::Zero(d));
    const VF second = hn::Add(hn::Mul(hn::LoadU(d, acc + i + kLanes), inverse), hn::Zero(d));
    const VU pairs = hn::Or(bf16_bits(first), hn::ShiftLeft<16>(bf16_bits(second)));
    const hn::Repartition<uint16_t, U32> d16;
    hn::StoreU(hn::BitCast(d16, pairs), d16, reinterpret_cast<uint16_t*>(y + i));
  }
}

}  // namespace
}  // namespace tandem::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::kernels::cpu {

HWY_EXPORT(load_row);
HWY_EXPORT(step);
HWY_EXPORT(store_row);

void attention_tile_load(AttentionTile& tile, int64_t row, const bf16* q, float scale) {
  HWY_DYNAMIC_DISPATCH(load_row)(tile, row, q, scale);
}
void attention_tile_step(AttentionTile& tile, const KeyBlock& keys, int64_t row_begin,
                         const int* key_count) {
  HWY_DYNAMIC_DISPATCH(step)(tile, keys, row_begin, key_count);
}
void attention_tile_store(const AttentionTile& tile, int64_t row, bf16* y) {
  HWY_DYNAMIC_DISPATCH(store_row)(tile, row, y);
}

}  // namespace tandem::kernels::cpu
#endif  // HWY_ONCE
