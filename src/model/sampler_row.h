// SPDX-License-Identifier: Apache-2.0
// One row of logits: whole passes over it and choices among its entries. sampler.cpp calls it.
// A "key" is a float's bits made comparable as an integer: larger float, larger key; -0 equals 0.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::model {

inline constexpr int32_t kRowBlock = 128;  // ids per entry of RowSummary::block_max

[[nodiscard]] inline int32_t key_of(float value) {
  const auto bits = std::bit_cast<int32_t>(value + 0.0F);  // -0 becomes 0
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
[[nodiscard]] inline float value_of(int32_t key) {
  return std::bit_cast<float>(key ^ ((key >> 31) & 0x7fffffff));
}

struct RowSummary {
  int32_t max_key = 0;
  bool has_bad = false;            // NaN or +infinity
  std::vector<int32_t> block_max;  // [ceil(V / kRowBlock)]: largest key of each block
};

// One pass over the row. A row without one finite logit has max_key == key_of(-infinity).
void summarise(std::span<const float> row, RowSummary& out);

// A logit that takes part in the draw.
struct Candidate {
  int32_t id = 0;
  int32_t key = 0;
  float weight = 0.0F;  // exp((logit - max) / T), set once it is needed
};

// A key that at least min(k, V) entries of the row reach, as high as block_max shows. k >= 1.
[[nodiscard]] int32_t threshold_for(const RowSummary& summary, int32_t k,
                                    std::vector<int32_t>& working);

// Appends the entries whose key is at least `key_min`, -infinity never, in order of id.
void gather(std::span<const float> row, const RowSummary& summary, int32_t key_min,
            std::vector<Candidate>& out);

// Working memory of the two below.
using Histogram = std::array<double, 2048>;

// Keeps the k best, in order of id; ties by lower id.
void keep_top_k(std::vector<Candidate>& candidates, int32_t k, Histogram& histogram);

// Keeps the smallest set of best candidates whose weights add up to `mass`; ties by lower id.
void keep_top_mass(std::vector<Candidate>& candidates, double mass, Histogram& histogram);

// exp(x) for x <= 0, in f32 with an error below 2 ulp; 0 below -87. Plain arithmetic without a
// library call or a fused multiply-add, so that it vectorises and gives the same bits everywhere.
[[nodiscard]] float exp_nonpositive(float x);

// weights[i] = exp((row[i] - max) / temperature); -infinity gives 0. Returns their sum in f64 and
// adds the sum of each block of kRowBlock ids to `block_sums`.
double weigh_row(std::span<const float> row, float max, float temperature, std::span<float> weights,
                 std::vector<double>& block_sums);

}  // namespace tandem::model
