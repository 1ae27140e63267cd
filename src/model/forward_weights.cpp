// SPDX-License-Identifier: Apache-2.0
#include "model/forward_weights.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "model/forward_rope.h"

namespace tandem::model {
namespace {

class Packer {
 public:
  Packer(const ModelConfig& config, const Exec& exec, std::vector<Buffer>& storage)
      : config_(config), exec_(exec), storage_(storage) {}

  [[nodiscard]] Tensor copy(const Tensor& t) {
    CHECK(t.is_dense(), "{} has gaps", t.describe());
    Tensor out = t;
    out.data = allocate(t.bytes());
    std::memcpy(out.data, t.data, t.bytes());
    return out;
  }

  [[nodiscard]] kernels::LinearWeight linear(const Tensor& w) {
    return kernels::linear_pack(
        exec_, w, allocate(kernels::linear_weight_bytes(exec_.device, w.size(0), w.size(1))));
  }

  // One product for several matrices of the same input: their rows, one after the other.
  [[nodiscard]] kernels::LinearWeight stacked(std::initializer_list<Tensor> parts) {
    const int64_t columns = parts.begin()->size(1);
    int64_t rows = 0;
    for (const Tensor& part : parts) rows += part.size(0);
    const Buffer joined(static_cast<size_t>(rows * columns) * sizeof(bf16));
    auto* to = joined.data();
    for (const Tensor& part : parts) {
      CHECK(part.is_dense() && part.size(1) == columns, "{}", part.describe());
      std::memcpy(to, part.data, part.bytes());
      to += part.bytes();
    }
    return linear(Tensor::dense(joined.data(), DType::kBf16, {rows, columns}));
  }

  [[nodiscard]] PackedLayer layer(const LayerWeights& w) {
    PackedLayer out{.input_norm = copy(w.input_norm),
                    .post_attention_norm = copy(w.post_attention_norm),
                    .q_norm = copy(w.q_norm),
                    .k_norm = copy(w.k_norm),
                    .qkv = stacked({w.q, w.k, w.v}),
                    .o = linear(w.o)};
    CHECK(w.dense.has_value() != w.moe.has_value());
    if (w.dense) {
      out.dense = PackedDense{.gate_up = stacked({w.dense->gate, w.dense->up}),
                              .down = linear(w.dense->down)};
    } else {
      out.moe = PackedMoe{.router = linear(w.moe->router), .experts = experts(*w.moe)};
    }
    return out;
  }

  [[nodiscard]] PackedMtp mtp(const MtpWeights& w) {
    return {.fc = linear(w.fc),
            .norm_embedding = copy(w.norm_embedding),
            .norm_hidden = copy(w.norm_hidden),
            .norm = copy(w.norm),
            .layer = layer(w.layer)};
  }

  [[nodiscard]] Tensor rope() {
    const RopeFrequencies frequencies = rope_frequencies(config_.rope, config_.head_dim);
    const int64_t positions = config_.max_position, head_dim = config_.head_dim;
    void* data = allocate(static_cast<size_t>(positions * head_dim) * sizeof(float));
    const Tensor table = Tensor::dense(data, DType::kF32, {positions, head_dim}, exec_.device);
    fill_rope_table(exec_, frequencies, table);
    return table;
  }

 private:
  [[nodiscard]] void* allocate(size_t bytes) { return storage_.emplace_back(bytes).data(); }

  [[nodiscard]] kernels::MoeWeight experts(const MoeWeights& w) {
    const size_t bytes =
        kernels::moe_weight_bytes(exec_.device, w.gate.size(0), w.gate.size(2), w.gate.size(1));
    return kernels::moe_pack(exec_,
                             {.gate = w.gate, .up = w.up, .down = w.down, .out = allocate(bytes)});
  }

  const ModelConfig& config_;
  const Exec& exec_;
  std::vector<Buffer>& storage_;
};

}  // namespace

PackedWeights pack_weights(const ModelConfig& config, const Weights& weights, const Exec& exec) {
  PackedWeights out;
  Packer packer(config, exec, out.storage);
  out.embedding = packer.copy(weights.embedding);
  out.final_norm = packer.copy(weights.final_norm);
  out.rope = packer.rope();
  out.lm_head = packer.linear(weights.lm_head);
  for (const LayerWeights& layer : weights.layers) out.layers.push_back(packer.layer(layer));
  if (weights.mtp) out.mtp = packer.mtp(*weights.mtp);
  return out;
}

}  // namespace tandem::model
