// SPDX-License-Identifier: Apache-2.0
// A checkpoint's tensors in memory, as they are stored (bf16, row major [out,in]), checked against
// the config: every tensor has the wanted shape, none is missing, none is unknown. model/forward
// packs them for its kernels. Source of names and shapes: the published checkpoints of Qwen3 and
// Qwen3-MoE; the MTP layer's are those of Qwen3-Next.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/result.h"
#include "core/tensor.h"
#include "model/config.h"
#include "model/safetensors.h"

namespace tandem::model {

struct DenseMlpWeights {
  Tensor gate, up;  // bf16 [I,H]
  Tensor down;      // bf16 [H,I]
};

struct MoeWeights {
  Tensor router;    // bf16 [E,H]
  Tensor gate, up;  // bf16 [E,I,H]
  Tensor down;      // bf16 [E,H,I]
};

struct LayerWeights {
  Tensor input_norm, post_attention_norm;  // bf16 [H]
  Tensor q, k, v;                          // bf16 [heads*D,H]
  Tensor o;                                // bf16 [H,q_heads*D]
  Tensor q_norm, k_norm;                   // bf16 [D]
  std::optional<DenseMlpWeights> dense;    // exactly one of the two
  std::optional<MoeWeights> moe;
};

// The draft layer: shares the embedding and the head. Norms are of the family's own
// kind.
struct MtpWeights {
  Tensor fc;                           // bf16 [H,2H], embedding first
  Tensor norm_embedding, norm_hidden;  // bf16 [H]
  Tensor norm;                         // bf16 [H]
  LayerWeights layer;
};

struct Weights {
  Tensor embedding;   // bf16 [V,H]
  Tensor final_norm;  // bf16 [H]
  Tensor lm_head;     // bf16 [V,H]; the embedding itself where tied
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp;  // absent where the checkpoint has none, whatever the config says
  std::vector<Buffer> storage;    // what the views above point into
};

// done/total in bytes; called from the loading thread about every 64 MiB.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

struct WeightOptions {
  bool refuse_nan = true;  // scan for NaN and infinity; the error names the tensor
  LoadProgress progress;
};

// Tensors stored as f32 or f16 are rounded to bf16 (a log line counts them). Refused by name:
// tensors that the config does not ask for, those that are missing, another shape or dtype. A tied
// config's stored lm_head is ignored. `mtp.*` is taken where any of it is stored, and must then be
// complete. Reads every byte once, in the order of the files.
Result<Weights> load_weights(const ModelConfig& config, const Checkpoint& checkpoint,
                             const WeightOptions& options);

// Seeded random weights of the config's shapes, for tests and benches without a checkpoint; with
// the MTP layer where the config announces it. Scaled so that activations keep the size they have
// in a trained model: norms near 1, matrices with variance 1 / inputs.
Weights random_weights(const ModelConfig& config, uint64_t seed);

}  // namespace tandem::model
