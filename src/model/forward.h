// SPDX-License-Identifier: Apache-2.0
// The forward pass of Qwen3 dense and Qwen3-MoE over a paged KV cache, written once for every
// device in terms of kernels/. engine/ calls it with mixed batches: prompt chunks and decode rows
// side by side. Source: Hugging Face transformers qwen3 and qwen3_moe; Qwen3-Next for the MTP
// layer.
//
// Values that other code could see are rounded to bf16 where Hugging Face's bf16 model rounds them:
// residual stream, outputs of norms and linear layers, q, k, v, the SwiGLU product. Inside an op
// everything stays f32 (norm times weight, rotation, probabilities, router logits and weights,
// expert outputs until they are summed), and so do the logits.
//
// repeat: a row's logits and KV depend only on its own sequence: bitwise equal alone or inside any
// batch, in one chunk or several, on one thread or more (CPU).
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/exec.h"
#include "core/ids.h"
#include "core/result.h"
#include "model/config.h"
#include "model/kv_store.h"
#include "model/weights.h"

namespace tandem::model {

// Consecutive rows of one sequence in a batch.
struct SequenceRows {
  int32_t row_begin = 0;
  int32_t row_count = 0;
  int32_t position_begin =
      0;  // position of the first row = tokens of the sequence already in the cache
  std::span<const PageId>
      pages;  // page i holds positions [i*page_tokens, (i+1)*page_tokens); covers all rows
};

struct Batch {
  std::span<const int32_t> tokens;          // [T]
  std::span<const SequenceRows> sequences;  // cover [0,T) in order
  std::span<const int32_t> logit_rows;      // rows whose logits are wanted, ascending
};

struct ForwardLimits {
  int32_t batch_rows_max = 0;  // T
  int32_t logit_rows_max = 0;
  int32_t context_tokens_max = 0;
  int32_t page_tokens = 16;  // the smallest in use: how many page ids a batch can carry
};

class Model {
 public:
  // kUnsupported, naming the field, where the kernels can't run these dimensions.
  [[nodiscard]] static Result<void> supports(const ModelConfig& config);

  // Packs the weights for this device's kernels; the raw ones may be dropped afterwards. Needs
  // supports(config).
  static Model create(const ModelConfig& config, const Weights& weights, const Exec& exec);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  [[nodiscard]] const ModelConfig& config() const;
  [[nodiscard]] KvLayout kv_layout(int32_t page_tokens) const;
  [[nodiscard]] size_t scratch_bytes(
      const ForwardLimits& limits) const;  // exec.scratch must have so much
  [[nodiscard]] bool has_mtp() const;

  // Called after layer l's K and V of all rows of the batch stand in the cache, in layer order, on
  // the calling thread.
  using LayerDone = std::function<void(int32_t layer)>;

  // logits f32 [R,V], R = batch.logit_rows.size(), or data == nullptr: the head is skipped.
  // hidden (after the final norm, what the head and the MTP layer read) bf16 [R,H], or [T,H]: of
  // every row, or data == nullptr. With T = 0 nothing happens.
  void forward(const Exec& exec, const Batch& batch, const KvStore& kv, Tensor logits,
               Tensor hidden, const LayerDone& layer_done) const;

  // One pass of the MTP layer: row t takes hidden h_t of hidden_in [T,H] (after the final norm) and
  // token t+1 in batch.tokens, and writes its KV at position t of `kv` (a store of one layer).
  // Logits predict token t+2; hidden_out feeds a further draft. Both as in forward(). Needs
  // has_mtp().
  void mtp_forward(const Exec& exec, const Batch& batch, Tensor hidden_in, const KvStore& kv,
                   Tensor logits, Tensor hidden_out) const;

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem::model
