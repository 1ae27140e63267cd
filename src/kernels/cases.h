// SPDX-License-Identifier: Apache-2.0
// The shapes that tests and benches of the ops run: edges, and the dimensions of real models. One
// table an op; `bench` marks the rows that *_bench.cpp times as well.
#pragma once

#include <cstdint>

namespace tandem::kernels {

struct LinearCase {
  const char* name;
  int64_t t, n, k;
  bool bench = false;
};
inline constexpr LinearCase kLinearCases[] = {
    {"no rows", 0, 16, 8},
    {"one of everything", 1, 1, 1},
    {"one row, odd", 1, 17, 33},
    {"127x129", 5, 127, 129},
    {"128x128", 6, 128, 128},
    {"129x127", 7, 129, 127},
    {"one whole block", 48, 64, 256},
    {"just over a block", 49, 65, 257},
    {"127 rows", 127, 96, 300},
    {"128 rows", 128, 96, 512},
    {"129 rows", 129, 80, 520},
    {"tandem-small qkv, 1 row", 1, 2048, 256, true},
    {"tandem-small qkv, 128 rows", 128, 2048, 256, true},
    {"Qwen3-30B qkv, 1 row", 1, 5120, 2048, true},
    {"Qwen3-30B qkv, 3 rows", 3, 5120, 2048, true},
    {"Qwen3-30B o, 2 rows", 2, 2048, 4096},
    {"Qwen3-30B router, 4 rows", 4, 128, 2048},
};
// Too large to compare with plain loops in a test.
inline constexpr LinearCase kLinearBenchCases[] = {
    {"Qwen3-30B qkv, 16 rows", 16, 5120, 2048, true},
    {"Qwen3-30B qkv, 128 rows", 128, 5120, 2048, true},
    {"Qwen3-30B qkv, 512 rows", 512, 5120, 2048, true},
    {"Qwen3-30B head part, 1 row", 1, 37984, 2048, true},
};

struct RowsCase {  // ops over rows of one width
  const char* name;
  int64_t t, width;
  bool bench = false;
};
inline constexpr RowsCase kRowsCases[] = {
    {"no rows", 0, 64},
    {"narrowest", 1, 8},
    {"40 wide", 3, 40},
    {"127 rows", 127, 128},
    {"128 rows", 128, 136},
    {"129 rows", 129, 256, true},
    {"Qwen3-30B hidden", 5, 2048},
    {"Qwen3-235B hidden", 128, 4096, true},
};

struct HeadsCase {  // qk_norm_rope_kv_write
  const char* name;
  int64_t t, q_heads, kv_heads, head_dim, page_tokens;
  bool bench = false;
};
inline constexpr HeadsCase kHeadsCases[] = {
    {"no rows", 0, 2, 1, 16, 16},
    {"one KV head", 1, 5, 1, 32, 16},
    {"heads of 48", 7, 6, 3, 48, 8},
    {"heads of 24", 7, 4, 2, 24, 16},
    {"tandem-small, 129 rows", 129, 8, 4, 128, 64, true},
    {"Qwen3-30B, 3 rows", 3, 32, 4, 128, 64},
    {"Qwen3-30B, 128 rows", 128, 32, 4, 128, 64, true},
};

struct AttentionCase {  // one sequence: `rows` of it after `cached` tokens
  const char* name;
  int64_t rows, cached, q_heads, kv_heads, head_dim, page_tokens;
  bool bench = false;
};
inline constexpr AttentionCase kAttentionCases[] = {
    {"no rows", 0, 0, 2, 1, 16, 16},
    {"first token", 1, 0, 2, 1, 16, 16},
    {"127 tokens", 127, 0, 4, 2, 32, 16},
    {"128 tokens", 128, 0, 6, 2, 48, 64},
    {"129 tokens", 129, 0, 5, 1, 64, 16},
    {"chunk after a prefix", 70, 61, 8, 4, 128, 64},
    {"decode at 63", 1, 63, 8, 4, 128, 64},
    {"decode at 64", 1, 64, 8, 4, 128, 64},
    {"decode at 300, one KV head of 40 query heads", 1, 300, 40, 1, 32, 16},
    {"Qwen3-30B, 5 rows at 200", 5, 200, 32, 4, 128, 64},
    {"heads of 256", 9, 130, 2, 1, 256, 32},
    {"heads of 24", 67, 3, 4, 2, 24, 16},
    {"heads of 8", 65, 0, 2, 2, 8, 16},
};
inline constexpr AttentionCase kAttentionBenchCases[] = {
    {"tandem-small prompt of 2000", 2000, 0, 8, 4, 128, 64, true},
    {"tandem-small decode at 2000", 1, 2000, 8, 4, 128, 64, true},
    {"Qwen3-30B prompt of 512", 512, 0, 32, 4, 128, 64, true},
    {"Qwen3-30B decode at 32000", 1, 32000, 32, 4, 128, 64, true},
};

struct MoeCase {  // router and moe
  const char* name;
  int64_t t, hidden, intermediate, experts, picks;
  bool bench = false;
};
inline constexpr MoeCase kMoeCases[] = {
    {"no rows", 0, 16, 16, 4, 2},
    {"one expert", 3, 24, 8, 1, 1},
    {"odd widths", 7, 40, 21, 5, 3},
    {"all experts picked", 9, 32, 33, 6, 6},
    {"127 rows", 127, 64, 48, 8, 2},
    {"128 rows", 128, 64, 40, 8, 2},
    {"129 rows", 129, 72, 40, 8, 2},
    {"tandem-small, 1 row", 1, 256, 128, 16, 4, true},
    {"tandem-small, 128 rows", 128, 256, 128, 16, 4, true},
    {"Qwen3-30B, 1 row of 16 experts", 1, 2048, 768, 16, 8, true},
};
inline constexpr MoeCase kMoeBenchCases[] = {
    {"tandem-small, 2000 rows", 2000, 256, 128, 16, 4, true},
    {"Qwen3-30B, 64 rows of 32 experts", 64, 2048, 768, 32, 8, true},
};

}  // namespace tandem::kernels
