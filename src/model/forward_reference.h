// SPDX-License-Identifier: Apache-2.0
// The forward pass once more, as plain loops in double precision over one whole sequence: what
// forward_test compares with. No cache, no batch, no blocks; shares no code with the kernels.
//
// The bound on the engine's logits comes from Monte Carlo arithmetic (Parker 1997): the same loops
// run with every value that the engine rounds to bf16 multiplied by 1 + u, u uniform in +-2^-8 (the
// unit roundoff of bf16) and drawn anew each time. The spread of the results over a few runs is
// what rounding does to these weights and this prompt, wherever they amplify it, routing included.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.h"
#include "model/config.h"
#include "model/weights.h"

namespace tandem::model {

struct ReferenceOutput {
  std::vector<double> logits;  // [T,V]
  std::vector<double> hidden;  // [T,H], after the final norm
};

class Reference {
 public:
  // With `noise`, rounding is simulated as above; without, nothing is rounded.
  Reference(const ModelConfig& config, const Weights& weights, Rng* noise)
      : config_(config), weights_(weights), noise_(noise) {}

  [[nodiscard]] ReferenceOutput forward(std::span<const int32_t> tokens) const;
  // Row t: hidden[t] and next_tokens[t] = token t+1.
  [[nodiscard]] ReferenceOutput mtp(std::span<const double> hidden,
                                    std::span<const int32_t> next_tokens) const;

 private:
  using Rows = std::vector<double>;  // [T,·]

  [[nodiscard]] double rounded(double x) const;
  [[nodiscard]] Rows norm(const Rows& x, const Tensor& w, int64_t width, bool round) const;
  [[nodiscard]] Rows linear(const Rows& x, const Tensor& w, int64_t expert, bool round) const;
  [[nodiscard]] Rows embed(std::span<const int32_t> tokens) const;
  void rotate(Rows& heads, int64_t head_count) const;
  [[nodiscard]] Rows attention(const LayerWeights& w, const Rows& x) const;
  [[nodiscard]] Rows dense(const DenseMlpWeights& w, const Rows& x) const;
  [[nodiscard]] Rows moe(const MoeWeights& w, const Rows& x) const;
  void add(Rows& x, const Rows& delta) const;
  void layer(const LayerWeights& w, Rows& x) const;
  [[nodiscard]] ReferenceOutput finish(const Rows& x, const Tensor& last_norm) const;

  const ModelConfig& config_;
  const Weights& weights_;
  Rng* noise_;
};

}  // namespace tandem::model
