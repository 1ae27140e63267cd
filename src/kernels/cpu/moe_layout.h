// SPDX-License-Identifier: Apache-2.0
// How cpu/moe lays out expert weights and cuts its work; moe.cpp sizes memory by it.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm.h"

namespace tandem::kernels::cpu {

// An expert's gate and up panels alternate (gate 0, up 0, gate 1, …), so that one block of columns
// holds both halves of a SwiGLU.
struct MoeLayout {
  int64_t hidden = 0, intermediate = 0;

  [[nodiscard]] int64_t intermediate_padded() const {
    return gemm_panels(intermediate) * kPanelColumns;
  }
  [[nodiscard]] int64_t gate_up_size() const { return 2 * intermediate_padded() * hidden; }
  [[nodiscard]] int64_t down_size() const {
    return gemm_panels(hidden) * kPanelColumns * intermediate;
  }
};

// Up to kBlockRows slots of one expert.
struct MoeRowBlock {
  int32_t expert = 0, slot = 0, rows = 0;
};

}  // namespace tandem::kernels::cpu
