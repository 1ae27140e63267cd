// SPDX-License-Identifier: Apache-2.0
#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/moe.h"
#include "kernels/qk_norm_rope_kv_write.h"
#include "kernels/rms_norm.h"
#include "kernels/router.h"
#include "kernels/silu_mul.h"
#include "model/forward_batch.h"
#include "model/forward_weights.h"

namespace tandem::model {

struct Model::State {
  ModelConfig config;
  PackedWeights weights;
};

namespace {

Tensor take_bf16(const Exec& exec, int64_t rows, int64_t columns) {
  return Tensor::dense(exec.scratch->take<bf16>(rows * columns), DType::kBf16, {rows, columns},
                       exec.device);
}

Tensor take_f32(const Exec& exec, int64_t rows, int64_t columns) {
  return Tensor::dense(exec.scratch->take<float>(rows * columns), DType::kF32, {rows, columns},
                       exec.device);
}

Tensor take_i32(const Exec& exec, int64_t count) {
  return Tensor::dense(exec.scratch->take<int32_t>(count), DType::kI32, {count}, exec.device);
}

Tensor columns_of(Tensor t, int64_t begin, int64_t count) {
  t.data = t.as<bf16>() + begin;
  t.shape[1] = count;
  return t;
}

// The residual stream between two ops: the next norm adds `delta` to `residual` first.
struct Stream {
  Tensor residual;  // bf16 [T,H]
  Tensor delta;     // bf16 [T,H], or data == nullptr at the start
};

// One pass over a batch: what every layer of it shares.
class Pass {
 public:
  Pass(const Exec& exec, const ModelConfig& config, const Tensor& rope, const Batch& batch,
       const KvStore& kv)
      : exec_(exec),
        config_(config),
        rope_(rope),
        batch_(batch),
        kv_(kv),
        index_(index_batch(exec, batch, kv.layout())) {
    CHECK(kv.layout().kv_heads == config.kv_heads && kv.layout().head_dim == config.head_dim,
          "KV of {} heads of {}", kv.layout().kv_heads, kv.layout().head_dim);
  }

  // The layers, then the last norm. Returns bf16 [R,H], or [T,H] with `every_row`. x bf16 [T,H] is
  // overwritten.
  [[nodiscard]] Tensor run(std::span<const PackedLayer> layers, const Tensor& last_norm, Tensor x,
                           bool every_row, const Model::LayerDone& layer_done) {
    Stream stream{.residual = x};
    for (size_t l = 0; l < layers.size(); ++l) {
      // Rows without logits have done their part once the last layer's K and V stand in the cache.
      const bool trim = !every_row && l + 1 == layers.size();
      layer(layers[l], static_cast<int32_t>(l), trim, stream, layer_done);
    }
    return normed(stream, last_norm);
  }

 private:
  [[nodiscard]] Tensor normed(Stream& stream, const Tensor& weight) const {
    const bool start = stream.delta.data == nullptr;
    const Tensor y = take_bf16(exec_, stream.residual.size(0), config_.hidden);
    kernels::rms_norm(exec_, {.x = start ? stream.residual : stream.delta,
                              .residual = start ? Tensor{} : stream.residual,
                              .weight = weight,
                              .y = y,
                              .eps = config_.rms_norm_eps});
    return y;
  }

  void layer(const PackedLayer& w, int32_t l, bool trim, Stream& stream,
             const Model::LayerDone& layer_done) {
    const int64_t hidden = config_.hidden, q_width = int64_t{config_.q_heads} * config_.head_dim;
    const auto wanted = static_cast<int64_t>(batch_.logit_rows.size());
    const Stream before = stream;
    const int64_t rows = trim ? wanted : before.residual.size(0);
    // Outlive the scope below: what the next layer reads.
    stream.delta = take_delta(rows);
    if (trim) stream.residual = take_bf16(exec_, rows, hidden);

    const ScratchScope scope(*exec_.scratch);
    Stream in = before;
    const Tensor qkv = project_qkv(w, l, in);
    if (layer_done) layer_done(l);
    Tensor q = columns_of(qkv, 0, q_width);
    if (trim) {
      gather_rows(exec_, in.residual, batch_.logit_rows, stream.residual);
      const Tensor all_q = q;
      q = take_bf16(exec_, rows, q_width);
      gather_rows(exec_, all_q, batch_.logit_rows, q);
    }
    const Tensor attended = take_bf16(exec_, rows, q_width);
    attend(l, q, trim ? index_.wanted : index_.all, attended);
    kernels::linear(exec_, {.x = attended, .weight = w.o, .y = stream.delta});
    const Tensor x = normed(stream, w.post_attention_norm);
    w.dense ? dense_mlp(*w.dense, x, stream.delta) : moe_mlp(*w.moe, x, stream.delta);
  }

  // Two buffers take turns: a layer reads the one before's delta while it makes its own.
  [[nodiscard]] Tensor take_delta(int64_t rows) {
    Tensor& delta = deltas_[turn_++ % 2];
    if (delta.data == nullptr) {
      delta = take_bf16(exec_, static_cast<int64_t>(batch_.tokens.size()), config_.hidden);
    }
    return delta.rows(0, rows);
  }

  [[nodiscard]] Tensor project_qkv(const PackedLayer& w, int32_t l, Stream& stream) const {
    const Tensor x = normed(stream, w.input_norm);
    const Tensor qkv = take_bf16(exec_, x.size(0), w.qkv.n);
    kernels::linear(exec_, {.x = x, .weight = w.qkv, .y = qkv});
    kernels::qk_norm_rope_kv_write(exec_, {.qkv = qkv,
                                           .q_weight = w.q_norm,
                                           .k_weight = w.k_norm,
                                           .rope = rope_,
                                           .positions = index_.positions,
                                           .slots = index_.slots,
                                           .k_pages = kv_.slab(l, KvKind::kKey),
                                           .v_pages = kv_.slab(l, KvKind::kValue),
                                           .q_heads = config_.q_heads,
                                           .eps = config_.rms_norm_eps});
    return qkv;
  }

  void attend(int32_t l, const Tensor& q, const AttentionIndex& index, const Tensor& y) const {
    const auto head_dim = static_cast<float>(config_.head_dim);
    kernels::attention(exec_, {.q = q,
                               .k_pages = kv_.slab(l, KvKind::kKey),
                               .v_pages = kv_.slab(l, KvKind::kValue),
                               .seq_rows = index.seq_rows,
                               .seq_positions = index.seq_positions,
                               .seq_pages = index.seq_pages,
                               .page_ids = index.page_ids,
                               .y = y,
                               .q_heads = config_.q_heads,
                               .scale = 1.0F / std::sqrt(head_dim)});
  }

  void dense_mlp(const PackedDense& w, const Tensor& x, const Tensor& y) const {
    const Tensor gate_up = take_bf16(exec_, x.size(0), w.gate_up.n);
    const Tensor middle = take_bf16(exec_, x.size(0), w.down.k);
    kernels::linear(exec_, {.x = x, .weight = w.gate_up, .y = gate_up});
    kernels::silu_mul(exec_, {.gate_up = gate_up, .y = middle});
    kernels::linear(exec_, {.x = middle, .weight = w.down, .y = y});
  }

  void moe_mlp(const PackedMoe& w, const Tensor& x, const Tensor& y) const {
    const int64_t rows = x.size(0), picks = config_.experts_per_token;
    const Tensor logits = take_f32(exec_, rows, config_.experts);
    kernels::linear(exec_, {.x = x, .weight = w.router, .y = logits});
    Tensor experts = take_i32(exec_, rows * picks);
    experts = Tensor::dense(experts.data, DType::kI32, {rows, picks}, exec_.device);
    const kernels::RouterArgs routing{.logits = logits,
                                      .experts = experts,
                                      .weights = take_f32(exec_, rows, picks),
                                      .expert_begin = take_i32(exec_, config_.experts + 1),
                                      .slots = take_i32(exec_, rows * picks),
                                      .slot_picks = take_i32(exec_, rows * picks),
                                      .renormalise = config_.norm_topk_prob};
    kernels::router(exec_, routing);
    kernels::moe(exec_, {.x = x,
                         .weight = w.experts,
                         .weights = routing.weights,
                         .expert_begin = routing.expert_begin,
                         .slots = routing.slots,
                         .slot_picks = routing.slot_picks,
                         .y = y});
  }

  const Exec& exec_;
  const ModelConfig& config_;
  const Tensor& rope_;
  const Batch& batch_;
  const KvStore& kv_;
  BatchIndex index_;
  Tensor deltas_[2];
  size_t turn_ = 0;
};

// What the caller asked for, out of the normed rows.
struct Outputs {
  Tensor logits, hidden;

  [[nodiscard]] bool every_row(const Batch& batch) const {
    return hidden.data != nullptr &&
           hidden.size(0) != static_cast<int64_t>(batch.logit_rows.size());
  }
  void check(const Batch& batch, const ModelConfig& config) const {
    const auto rows = static_cast<int64_t>(batch.tokens.size());
    const auto wanted = static_cast<int64_t>(batch.logit_rows.size());
    CHECK(logits.data == nullptr || logits.size(0) == wanted, "logits {}, {} rows wanted",
          logits.describe(), wanted);
    CHECK(hidden.data == nullptr || ((hidden.size(0) == wanted || hidden.size(0) == rows) &&
                                     hidden.rank == 2 && hidden.size(1) == config.hidden &&
                                     hidden.dtype == DType::kBf16 && hidden.is_dense()),
          "hidden {}, {} rows, {} wanted", hidden.describe(), rows, wanted);
  }
  void write(const Exec& exec, const Batch& batch, const kernels::LinearWeight& head,
             Tensor normed) const {
    if (hidden.data != nullptr) std::memcpy(hidden.data, normed.data, normed.bytes());
    if (logits.data == nullptr) return;
    if (every_row(batch)) {
      const Tensor rows = take_bf16(exec, logits.size(0), normed.size(1));
      gather_rows(exec, normed, batch.logit_rows, rows);
      normed = rows;
    }
    kernels::linear(exec, {.x = normed, .weight = head, .y = logits});
  }
};

Tensor embed(const Exec& exec, const Batch& batch, const Tensor& table, const Tensor& y) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const Tensor tokens = take_i32(exec, rows);
  std::copy(batch.tokens.begin(), batch.tokens.end(), tokens.as<int32_t>());
  kernels::embedding(exec, {.tokens = tokens, .table = table, .y = y});
  return y;
}

}  // namespace

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelConfig& Model::config() const {
  return state_->config;
}
bool Model::has_mtp() const {
  return state_->weights.mtp.has_value();
}

Result<void> Model::supports(const ModelConfig& config) {
  const auto multiple = [](const char* field, int32_t value, int32_t of) -> Result<void> {
    if (value >= of && value % of == 0) return {};
    return Error{.code = ErrorCode::kUnsupported,
                 .text = fmt::format("{} is {}; it must be a multiple of {}", field, value, of),
                 .param = field};
  };
  TRY(multiple("hidden_size", config.hidden, 8));
  TRY(multiple("head_dim", config.head_dim, 8));
  const bool any_dense = std::ranges::count(config.layer_is_moe, false) > 0;
  if (any_dense) TRY(multiple("intermediate_size", config.intermediate, 8));
  const auto at_most = [](const char* field, int64_t value, int64_t limit) -> Result<void> {
    if (value <= limit) return {};
    return Error{.code = ErrorCode::kUnsupported,
                 .text = fmt::format("{} is {}; at most {} works", field, value, limit),
                 .param = field};
  };
  TRY(at_most("head_dim", config.head_dim, 256));
  TRY(at_most("num_experts", config.experts, kernels::kRouterExpertsMax));
  TRY(at_most("num_experts_per_tok", config.experts_per_token, kernels::kRouterPicksMax));
  if (config.rope.partial_factor != 1.0) {
    return Error{.code = ErrorCode::kUnsupported,
                 .text = "partial_rotary_factor other than 1 is not of this model family",
                 .param = "partial_rotary_factor"};
  }
  return {};
}

Model Model::create(const ModelConfig& config, const Weights& weights, const Exec& exec) {
  const Result<void> supported = supports(config);
  CHECK(supported.ok(), "{}", supported.error().text);
  CHECK(static_cast<int32_t>(weights.layers.size()) == config.layers, "{} layers",
        weights.layers.size());
  auto state = std::make_unique<State>();
  state->config = config;
  state->weights = pack_weights(config, weights, exec);
  return Model(std::move(state));
}

KvLayout Model::kv_layout(int32_t page_tokens) const {
  const ModelConfig& config = state_->config;
  return {.layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .page_tokens = page_tokens};
}

size_t Model::scratch_bytes(const ForwardLimits& limits) const {
  const ModelConfig& config = state_->config;
  const PackedWeights& weights = state_->weights;
  const auto rows = static_cast<size_t>(limits.batch_rows_max);
  const auto t = static_cast<int64_t>(rows);
  const auto hidden = static_cast<size_t>(config.hidden);
  const auto q_width = static_cast<size_t>(config.q_heads * config.head_dim);
  const auto kv_width = static_cast<size_t>(config.kv_heads * config.head_dim);
  const auto device = weights.embedding.device;
  // bf16 rows: x, two deltas, three norms' outputs, a trimmed residual, MTP's [T,2H] and gathers.
  const size_t rows_bf16 = 10 * hidden + 3 * q_width + 2 * kv_width;
  const auto add_layer = [&](const PackedLayer& layer, size_t& mlp, size_t& k) {
    k = std::max({k, static_cast<size_t>(layer.qkv.k), static_cast<size_t>(layer.o.k)});
    if (layer.dense) {
      k = std::max(k, static_cast<size_t>(layer.dense->down.k));
      mlp = std::max(mlp, rows * static_cast<size_t>(3 * layer.dense->down.k) * sizeof(bf16));
    } else {
      const auto experts = static_cast<size_t>(config.experts);
      const auto picks = static_cast<size_t>(config.experts_per_token);
      const size_t routing = rows * (experts + 4 * picks) * 4 + (experts + 1) * 4;
      mlp = std::max(mlp, routing + kernels::moe_scratch_bytes(layer.moe->experts, t,
                                                               config.experts_per_token));
    }
  };
  size_t mlp = 0, k = 2 * hidden;
  for (const PackedLayer& layer : weights.layers) add_layer(layer, mlp, k);
  if (weights.mtp) add_layer(weights.mtp->layer, mlp, k);
  return index_batch_bytes(limits) + rows * rows_bf16 * sizeof(bf16) + rows * sizeof(int32_t) +
         mlp + kernels::linear_scratch_bytes(device, t, static_cast<int64_t>(k)) +
         kernels::attention_scratch_bytes(device, t) + 64 * 64;
}

void Model::forward(const Exec& exec, const Batch& batch, const KvStore& kv, Tensor logits,
                    Tensor hidden, const LayerDone& layer_done) const {
  const Outputs outputs{.logits = logits, .hidden = hidden};
  outputs.check(batch, state_->config);
  CHECK(kv.layout().layers == state_->config.layers, "KV of {} layers", kv.layout().layers);
  if (batch.tokens.empty()) return;
  const PackedWeights& weights = state_->weights;
  const ScratchScope scope(*exec.scratch);
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const Tensor x =
      embed(exec, batch, weights.embedding, take_bf16(exec, rows, state_->config.hidden));
  Pass pass(exec, state_->config, weights.rope, batch, kv);
  const Tensor normed =
      pass.run(weights.layers, weights.final_norm, x, outputs.every_row(batch), layer_done);
  outputs.write(exec, batch, weights.lm_head, normed);
}

void Model::mtp_forward(const Exec& exec, const Batch& batch, Tensor hidden_in, const KvStore& kv,
                        Tensor logits, Tensor hidden_out) const {
  CHECK(has_mtp());
  const PackedMtp& mtp = *state_->weights.mtp;
  const ModelConfig& config = state_->config;
  const Outputs outputs{.logits = logits, .hidden = hidden_out};
  outputs.check(batch, config);
  CHECK(kv.layout().layers == 1, "KV of {} layers", kv.layout().layers);
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  if (rows == 0) return;
  const ScratchScope scope(*exec.scratch);
  const Tensor x = take_bf16(exec, rows, config.hidden);
  // concat [e, n]: the embedding first, the hidden state second.
  const Tensor pair = take_bf16(exec, rows, 2 * int64_t{config.hidden});
  const Tensor e = columns_of(pair, 0, config.hidden);
  const Tensor n = columns_of(pair, config.hidden, config.hidden);
  embed(exec, batch, state_->weights.embedding, x);
  kernels::rms_norm(exec,
                    {.x = x, .weight = mtp.norm_embedding, .y = e, .eps = config.rms_norm_eps});
  kernels::rms_norm(
      exec, {.x = hidden_in, .weight = mtp.norm_hidden, .y = n, .eps = config.rms_norm_eps});
  kernels::linear(exec, {.x = pair, .weight = mtp.fc, .y = x});
  Pass pass(exec, config, state_->weights.rope, batch, kv);
  const Tensor normed =
      pass.run({&mtp.layer, 1}, mtp.norm, x, outputs.every_row(batch), LayerDone{});
  outputs.write(exec, batch, state_->weights.lm_head, normed);
}

}  // namespace tandem::model
