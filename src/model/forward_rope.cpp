// SPDX-License-Identifier: Apache-2.0
#include "model/forward_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem::model {

RopeFrequencies rope_frequencies(const RopeConfig& rope, int32_t head_dim) {
  const int32_t half = head_dim / 2;
  RopeFrequencies out;
  for (int32_t i = 0; i < half; ++i) {
    out.inverse.push_back(std::pow(rope.theta, -2.0 * i / head_dim));
  }
  if (!rope.yarn) return out;

  // The pair that makes `turns` turns within the original length.
  const auto pair_of_turns = [&](double turns) {
    return head_dim * std::log(rope.yarn_original_max / (2 * std::numbers::pi * turns)) /
           (2 * std::log(rope.theta));
  };
  const double low = std::max(std::floor(pair_of_turns(rope.yarn_beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of_turns(rope.yarn_beta_slow)), head_dim - 1.0);
  if (high == low) high += 0.001;  // as the reference does against a division by zero
  for (int32_t i = 0; i < half; ++i) {
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    double& f = out.inverse[static_cast<size_t>(i)];
    f = f / rope.yarn_factor * ramp + f * (1 - ramp);
  }
  out.magnitude = rope.yarn_attention_factor != 0.0
                      ? rope.yarn_attention_factor
                      : (rope.yarn_factor > 1.0 ? 0.1 * std::log(rope.yarn_factor) + 1.0 : 1.0);
  return out;
}

void fill_rope_table(const Exec& exec, const RopeFrequencies& frequencies, Tensor out) {
  const auto half = static_cast<int64_t>(frequencies.inverse.size());
  CHECK(out.size(1) == 2 * half, "{} for {} pairs", out.describe(), half);
  exec.parallel_for(out.size(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      float* row = out.row<float>(position);
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) * frequencies.inverse[static_cast<size_t>(i)];
        row[i] = static_cast<float>(std::cos(angle) * frequencies.magnitude);
        row[half + i] = static_cast<float>(std::sin(angle) * frequencies.magnitude);
      }
    }
  });
}

}  // namespace tandem::model
