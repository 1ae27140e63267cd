// SPDX-License-Identifier: Apache-2.0
// The rotary fields of config.json. config.cpp calls it.
#pragma once

#include "core/result.h"
#include "model/config.h"
#include "model/config_read.h"

namespace tandem::model {

// rope_parameters if present, else rope_theta, rope_scaling and partial_rotary_factor. Theta is
// 10000 only where nothing is given.
Result<RopeConfig> read_rope(const FieldReader& text, int32_t head_dim, int32_t max_position);

}  // namespace tandem::model
