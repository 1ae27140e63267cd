// SPDX-License-Identifier: Apache-2.0
// The table of rotary angles: cos and sin of every position, computed once in double precision.
// Model::create calls it. Source: Su et al. 2021; Peng et al. 2023 (YaRN), with the constants of
// Hugging Face's rope utilities.
#pragma once

#include <cstdint>
#include <vector>

#include "core/exec.h"
#include "model/config.h"

namespace tandem::model {

// Radians per position of each pair [D/2], and the factor on cos and sin.
struct RopeFrequencies {
  std::vector<double> inverse;
  double magnitude = 1.0;
};
[[nodiscard]] RopeFrequencies rope_frequencies(const RopeConfig& rope, int32_t head_dim);

// out f32 [positions, D]: cos [D/2], then sin [D/2].
void fill_rope_table(const Exec& exec, const RopeFrequencies& frequencies, Tensor out);

}  // namespace tandem::model
