// SPDX-License-Identifier: Apache-2.0
// Weights in the order of the kernels: what Model holds after create. forward.cpp reads it.
#pragma once

#include <optional>
#include <vector>

#include "core/exec.h"
#include "kernels/linear.h"
#include "kernels/moe.h"
#include "model/config.h"
#include "model/weights.h"

namespace tandem::model {

struct PackedDense {
  kernels::LinearWeight gate_up;  // [2I,H], gate first
  kernels::LinearWeight down;     // [H,I]
};

struct PackedMoe {
  kernels::LinearWeight router;  // [E,H]
  kernels::MoeWeight experts;
};

struct PackedLayer {
  Tensor input_norm, post_attention_norm;  // bf16 [H]
  Tensor q_norm, k_norm;                   // bf16 [D]
  kernels::LinearWeight qkv;               // [(Hq+2Hkv)*D,H]
  kernels::LinearWeight o;                 // [H,Hq*D]
  std::optional<PackedDense> dense;        // exactly one of the two
  std::optional<PackedMoe> moe;
};

struct PackedMtp {
  kernels::LinearWeight fc;                  // [H,2H], embedding first
  Tensor norm_embedding, norm_hidden, norm;  // bf16 [H]
  PackedLayer layer;
};

struct PackedWeights {
  Tensor embedding;   // bf16 [V,H]
  Tensor final_norm;  // bf16 [H]
  Tensor rope;        // f32 [max_position,D]
  kernels::LinearWeight lm_head;
  std::vector<PackedLayer> layers;
  std::optional<PackedMtp> mtp;
  std::vector<Buffer> storage;  // what the views above point into
};

[[nodiscard]] PackedWeights pack_weights(const ModelConfig& config, const Weights& weights,
                                         const Exec& exec);

}  // namespace tandem::model
