// SPDX-License-Identifier: Apache-2.0
// One row of logits: whole passes over it and choices among its entries. sampler.cpp calls it.
// A "key" is a float's bits made comparable as an integer: larger float, larger key; -0 equals 0.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
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
[[nodiscard]] inline float exp_nonpositive(float x) {
  // x = n ln 2 + r, |r| <= ln 2 / 2; exp(x) = 2^n exp(r). Adding and taking away 1.5 * 2^23 rounds
  // to an integer. ln 2 in two parts, the first with trailing zeros, so that n * high is exact.
  constexpr float kRound = 12582912.0F;
  constexpr float kLog2e = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Selections are made on the bits, as integers: compilers don't vectorise a choice between floats
  // whose comparison could trap. Among negative floats a larger magnitude is a larger integer.
  constexpr auto kLowestBits = std::bit_cast<int32_t>(-87.0F);
  const auto bits = std::bit_cast<int32_t>(x) | std::numeric_limits<int32_t>::min();
  const int32_t is_below = bits > kLowestBits ? -1 : 0;
  const auto clamped = std::bit_cast<float>((bits & ~is_below) | (kLowestBits & is_below));
  const float n = (clamped * kLog2e + kRound) - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  // Minimax polynomial of degree 6 with the first two terms exact (Cephes expf).
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = (p * r) * r + r + 1.0F;
  const auto power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return std::bit_cast<float>(std::bit_cast<int32_t>(p * power) & ~is_below);
}

// weights[i] = exp((row[i] - max) / temperature); -infinity gives 0. Returns their sum in f64 and
// adds the sum of each block of kRowBlock ids to `block_sums`.
double weigh_row(std::span<const float> row, float max, float temperature, std::span<float> weights,
                 std::vector<double>& block_sums);

}  // namespace tandem::model
