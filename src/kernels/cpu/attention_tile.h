// SPDX-License-Identifier: Apache-2.0
// The arithmetic of attention: some query rows of one KV head against one block of keys. Called by
// cpu/attention.cpp, which walks the pages.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tandem::kernels::cpu {

constexpr int kKeyBlock = 64;      // keys per step of the online softmax, at absolute positions
constexpr int kQueryRowsMax = 32;  // (token, head) pairs that share the keys of one walk
constexpr int kHeadDimMax = 256;

// Query rows and their running softmax. Within q and acc, the D values of a row stand in the order
// in which bf16 pairs expand (evens, then odds, of each vector pair). D % 16 == 0 here.
struct AttentionTile {
  int64_t rows = 0, head_dim = 0;
  alignas(64) float q[kQueryRowsMax * kHeadDimMax];     // [rows,D], times scale
  alignas(64) float acc[kQueryRowsMax * kHeadDimMax];   // [rows,D], sum of p v
  alignas(64) float scores[kQueryRowsMax * kKeyBlock];  // [rows,64], then probabilities
  float maximum[kQueryRowsMax], sum[kQueryRowsMax], correction[kQueryRowsMax];
};

// One block of keys: k[j], v[j] point to D values of key j. Pointers up to the next multiple of 8
// must be readable (and count as masked).
struct KeyBlock {
  const bf16* k[kKeyBlock];
  const bf16* v[kKeyBlock];
  int count = 0;
};

void attention_tile_load(AttentionTile& tile, int64_t row, const bf16* q, float scale);
// Rows [row_begin, rows) take in the block; row r sees its first key_count[r] keys (>= 1).
void attention_tile_step(AttentionTile& tile, const KeyBlock& keys, int64_t row_begin,
                         const int* key_count);
void attention_tile_store(const AttentionTile& tile, int64_t row, bf16* y);

}  // namespace tandem::kernels::cpu
