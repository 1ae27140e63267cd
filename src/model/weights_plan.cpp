// SPDX-License-Identifier: Apache-2.0
#include "model/weights_plan.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::model {
namespace {

constexpr size_t kAlignment = 64;  // of every tensor, as kernels want it

// Hands out the tensors of one buffer. Run once without memory to learn the size, then with it.
class Carver {
 public:
  Carver(std::byte* base, std::vector<WeightSlot>* slots) : base_(base), slots_(slots) {}

  Tensor take(std::string name, std::initializer_list<int64_t> shape) {
    const Tensor tensor = reserve(shape);
    add_slot(std::move(name), shape, tensor.data);
    return tensor;
  }
  // bf16 [experts, shape…]: one stored tensor per expert, `name(e)` its name.
  template <typename Name>
  Tensor take_experts(int32_t experts, const Name& name, int64_t rows, int64_t columns) {
    const Tensor all = reserve({experts, rows, columns});
    for (int32_t e = 0; e < experts; ++e) {
      add_slot(name(e), {rows, columns}, base_ == nullptr ? nullptr : all.rows(e, e + 1).data);
    }
    return all;
  }
  [[nodiscard]] size_t bytes() const { return used_; }

 private:
  Tensor reserve(std::initializer_list<int64_t> shape) {
    const Tensor tensor =
        Tensor::dense(base_ == nullptr ? nullptr : base_ + used_, DType::kBf16, shape);
    used_ += (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
    return tensor;
  }
  void add_slot(std::string name, std::initializer_list<int64_t> shape, void* data) {
    if (slots_ != nullptr)
      slots_->push_back({.name = std::move(name), .shape = shape, .data = data});
  }

  std::byte* base_;
  std::vector<WeightSlot>* slots_;
  size_t used_ = 0;
};

MoeWeights carve_moe(const ModelConfig& c, const std::string& at, Carver& carver) {
  const auto expert = [&](const char* matrix) {
    return [&at, matrix](int32_t e) {
      return fmt::format("{}mlp.experts.{}.{}.weight", at, e, matrix);
    };
  };
  const int64_t h = c.hidden, i = c.moe_intermediate;
  MoeWeights moe;
  moe.router = carver.take(at + "mlp.gate.weight", {c.experts, h});
  moe.gate = carver.take_experts(c.experts, expert("gate_proj"), i, h);
  moe.up = carver.take_experts(c.experts, expert("up_proj"), i, h);
  moe.down = carver.take_experts(c.experts, expert("down_proj"), h, i);
  return moe;
}

// `at` ends in '.': "model.layers.3.".
LayerWeights carve_layer(const ModelConfig& c, const std::string& at, bool moe, Carver& carver) {
  const int64_t h = c.hidden, d = c.head_dim;
  const int64_t q_rows = c.q_heads * d, kv_rows = c.kv_heads * d;
  LayerWeights layer;
  layer.input_norm = carver.take(at + "input_layernorm.weight", {h});
  layer.q = carver.take(at + "self_attn.q_proj.weight", {q_rows, h});
  layer.k = carver.take(at + "self_attn.k_proj.weight", {kv_rows, h});
  layer.v = carver.take(at + "self_attn.v_proj.weight", {kv_rows, h});
  layer.o = carver.take(at + "self_attn.o_proj.weight", {h, q_rows});
  layer.q_norm = carver.take(at + "self_attn.q_norm.weight", {d});
  layer.k_norm = carver.take(at + "self_attn.k_norm.weight", {d});
  layer.post_attention_norm = carver.take(at + "post_attention_layernorm.weight", {h});
  if (moe) {
    layer.moe = carve_moe(c, at, carver);
  } else {
    DenseMlpWeights dense;
    dense.gate = carver.take(at + "mlp.gate_proj.weight", {c.intermediate, h});
    dense.up = carver.take(at + "mlp.up_proj.weight", {c.intermediate, h});
    dense.down = carver.take(at + "mlp.down_proj.weight", {h, c.intermediate});
    layer.dense = dense;
  }
  return layer;
}

MtpWeights carve_mtp(const ModelConfig& c, Carver& carver) {
  const int64_t h = c.hidden;
  MtpWeights mtp;
  mtp.fc = carver.take("mtp.fc.weight", {h, 2 * h});
  mtp.norm_embedding = carver.take("mtp.pre_fc_norm_embedding.weight", {h});
  mtp.norm_hidden = carver.take("mtp.pre_fc_norm_hidden.weight", {h});
  mtp.norm = carver.take("mtp.norm.weight", {h});
  mtp.layer = carve_layer(c, "mtp.layers.0.", c.family == Family::kQwen3Moe, carver);
  return mtp;
}

// Runs `carve` for the names and the size, then, where wanted, with memory of that size.
template <typename Carve>
auto carve_into(WeightPlan& plan, bool allocate, const Carve& carve) {
  Carver counter(nullptr, allocate ? nullptr : &plan.slots);
  auto carved = carve(counter);
  if (!allocate) return carved;
  Buffer buffer(counter.bytes());
  Carver carver(buffer.data(), &plan.slots);
  plan.weights.storage.push_back(std::move(buffer));
  return carve(carver);
}

}  // namespace

int64_t WeightSlot::count() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

WeightPlan plan_weights(const ModelConfig& c, const PlanOptions& options) {
  const std::string prefix(options.prefix);
  WeightPlan plan;
  Weights& weights = plan.weights;
  weights.embedding = carve_into(plan, options.allocate, [&](Carver& carver) {
    return carver.take(prefix + "embed_tokens.weight", {c.vocab, c.hidden});
  });
  // A buffer per layer, so that whoever packs a layer can drop its raw weights at once.
  for (int32_t l = 0; l < c.layers; ++l) {
    weights.layers.push_back(carve_into(plan, options.allocate, [&](Carver& carver) {
      return carve_layer(c, fmt::format("{}layers.{}.", prefix, l),
                         c.layer_is_moe[static_cast<size_t>(l)], carver);
    }));
  }
  weights.final_norm = carve_into(plan, options.allocate, [&](Carver& carver) {
    return carver.take(prefix + "norm.weight", {c.hidden});
  });
  weights.lm_head = c.tie_word_embeddings
                        ? weights.embedding
                        : carve_into(plan, options.allocate, [&](Carver& carver) {
                            return carver.take("lm_head.weight", {c.vocab, c.hidden});
                          });
  if (options.with_mtp) {
    weights.mtp =
        carve_into(plan, options.allocate, [&](Carver& carver) { return carve_mtp(c, carver); });
  }
  return plan;
}

}  // namespace tandem::model
