// SPDX-License-Identifier: Apache-2.0
#include "model/sampler_row.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace tandem::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The end of the kept entries in the order (key descending, id ascending): everything above `key`,
// and the first `ties` of those equal to it.
struct Cut {
  int32_t key = 0;
  int64_t ties = 0;
};

uint32_t sortable(int32_t key) {  // as unsigned, in the same order
  return static_cast<uint32_t>(key) ^ 0x80000000U;
}

// Radix selection, most significant digit first: the candidates' measures (1 or their weight) are
// summed by digit of the key, and the digit where the running sum reaches `target` is looked into
// more closely. Three passes whatever the keys are; no sorting.
template <typename Measure>
Cut find_cut(const std::vector<Candidate>& candidates, double target, const Measure& measure,
             Histogram& sums) {
  struct Digit {
    uint32_t shift, bits;
  };
  constexpr std::array<Digit, 3> kDigits{{{21, 11}, {10, 11}, {0, 10}}};
  double reached = 0;
  uint32_t prefix = 0;
  for (const Digit digit : kDigits) {
    const uint32_t digits = 1U << digit.bits;
    std::fill_n(sums.begin(), digits, 0.0);
    uint32_t lowest = digits - 1;
    for (const Candidate& c : candidates) {
      const uint32_t key = sortable(c.key);
      if (digit.shift + digit.bits < 32 && key >> (digit.shift + digit.bits) != prefix) continue;
      const uint32_t at = key >> digit.shift & (digits - 1);
      sums[at] += measure(c);
      lowest = std::min(lowest, at);
    }
    // Sums of parts round differently from the sum of all: the lowest digit always ends the walk.
    uint32_t at = digits - 1;
    while (at > lowest && reached + sums[at] < target) reached += sums[at--];
    prefix = prefix << digit.bits | at;
  }
  Cut cut{.key = static_cast<int32_t>(prefix ^ 0x80000000U), .ties = 0};
  for (const Candidate& c : candidates) {
    if (c.key != cut.key) continue;
    ++cut.ties;
    reached += measure(c);
    if (reached >= target) break;
  }
  return cut;
}

void keep(std::vector<Candidate>& candidates, Cut cut) {
  std::erase_if(candidates, [&](const Candidate& c) {
    return c.key < cut.key || (c.key == cut.key && --cut.ties < 0);
  });
}

// Apart from its caller, and with pointers that don't overlap, so that it vectorises.
void weigh_block(const float* __restrict row, float max, float temperature,
                 float* __restrict weights, size_t count) {
  for (size_t i = 0; i < count; ++i) weights[i] = exp_nonpositive((row[i] - max) / temperature);
}

}  // namespace

void summarise(std::span<const float> row, RowSummary& out) {
  const auto count = static_cast<int64_t>(row.size());
  const int32_t low = std::numeric_limits<int32_t>::min();
  // NaNs have keys beyond those of the infinities: above with the sign clear, below with it set.
  int32_t max_key = low, min_key = std::numeric_limits<int32_t>::max();
  out.block_max.clear();
  for (int64_t begin = 0; begin < count; begin += kRowBlock) {
    const int64_t end = std::min<int64_t>(begin + kRowBlock, count);
    int32_t block_max = low;
    for (int64_t i = begin; i < end; ++i) {
      const int32_t key = key_of(row[static_cast<size_t>(i)]);
      block_max = key > block_max ? key : block_max;
      min_key = key < min_key ? key : min_key;
    }
    out.block_max.push_back(block_max);
    max_key = std::max(max_key, block_max);
  }
  out.max_key = max_key;
  out.has_bad = max_key >= key_of(kInfinity) || min_key < key_of(-kInfinity);
}

int32_t threshold_for(const RowSummary& summary, int32_t k, std::vector<int32_t>& working) {
  if (static_cast<size_t>(k) >= summary.block_max.size())
    return std::numeric_limits<int32_t>::min();
  // Each of the k blocks with the largest maxima holds an entry that reaches the k-th of them.
  working.assign(summary.block_max.begin(), summary.block_max.end());
  const auto kth = working.begin() + (k - 1);
  std::nth_element(working.begin(), kth, working.end(), std::greater<>());
  return *kth;
}

void gather(std::span<const float> row, const RowSummary& summary, int32_t key_min,
            std::vector<Candidate>& out) {
  const int32_t lowest = std::max(key_min, key_of(-kInfinity) + 1);
  for (size_t block = 0; block < summary.block_max.size(); ++block) {
    if (summary.block_max[block] < lowest) continue;
    const size_t begin = block * kRowBlock;
    const size_t end = std::min(begin + kRowBlock, row.size());
    for (size_t i = begin; i < end; ++i) {
      const int32_t key = key_of(row[i]);
      if (key >= lowest) out.push_back({.id = static_cast<int32_t>(i), .key = key});
    }
  }
}

void keep_top_k(std::vector<Candidate>& candidates, int32_t k, Histogram& histogram) {
  if (candidates.size() <= static_cast<size_t>(k)) return;
  keep(candidates, find_cut(
                       candidates, k, [](const Candidate&) { return 1.0; }, histogram));
}

void keep_top_mass(std::vector<Candidate>& candidates, double mass, Histogram& histogram) {
  const auto weight = [](const Candidate& c) { return static_cast<double>(c.weight); };
  keep(candidates, find_cut(candidates, mass, weight, histogram));
}

double weigh_row(std::span<const float> row, float max, float temperature, std::span<float> weights,
                 std::vector<double>& block_sums) {
  constexpr size_t kLanes = 8;  // partial sums of a block, added in a fixed order
  double total = 0;
  for (size_t begin = 0; begin < row.size(); begin += kRowBlock) {
    const size_t end = std::min(begin + kRowBlock, row.size());
    weigh_block(row.data() + begin, max, temperature, weights.data() + begin, end - begin);
    std::array<double, kLanes> lanes{};
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += weights[i + lane];
    }
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    for (; i < end; ++i) sum += weights[i];
    block_sums.push_back(sum);
    total += sum;
  }
  return total;
}

}  // namespace tandem::model
