// SPDX-License-Identifier: Apache-2.0
#include "model/forward_reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace tandem::model {
namespace {

double value(const Tensor& t, int64_t flat) {
  return static_cast<double>(static_cast<float>(t.as<bf16>()[flat]));
}

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

// YaRN's angle of pair i per position and the factor on cos and sin, straight from the paper.
double inverse_frequency(const RopeConfig& rope, int64_t i, int64_t head_dim) {
  const auto d = static_cast<double>(head_dim);
  const double f = 1.0 / std::pow(rope.theta, 2.0 * static_cast<double>(i) / d);
  if (!rope.yarn) return f;
  const auto correction = [&](double rotations) {
    return d * std::log(rope.yarn_original_max / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  const double low = std::max(0.0, std::floor(correction(rope.yarn_beta_fast)));
  const double high = std::min(d - 1.0, std::ceil(correction(rope.yarn_beta_slow)));
  const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
  return f * (1.0 - ramp) + f / rope.yarn_factor * ramp;
}

}  // namespace

double Reference::rounded(double x) const {
  if (noise_ == nullptr) return x;
  return x * (1.0 + (2.0 * static_cast<double>(noise_->uniform()) - 1.0) / 256.0);
}

Reference::Rows Reference::norm(const Rows& x, const Tensor& w, int64_t width, bool round) const {
  Rows y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(width)) {
    double squares = 0;
    for (size_t i = 0; i < static_cast<size_t>(width); ++i) squares += x[begin + i] * x[begin + i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) +
                                         static_cast<double>(config_.rms_norm_eps));
    for (int64_t i = 0; i < width; ++i) {
      const size_t at = begin + static_cast<size_t>(i);
      const double normed = x[at] * scale * value(w, i);
      y[at] = round ? rounded(normed) : normed;
    }
  }
  return y;
}

Reference::Rows Reference::linear(const Rows& x, const Tensor& w, int64_t expert,
                                  bool round) const {
  const int64_t n = w.size(w.rank - 2), k = w.size(w.rank - 1);
  const int64_t rows = static_cast<int64_t>(x.size()) / k;
  Rows y(static_cast<size_t>(rows * n));
  for (int64_t j = 0; j < n; ++j) {
    std::vector<double> column(static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i) {
      column[static_cast<size_t>(i)] = value(w, (expert * n + j) * k + i);
    }
    for (int64_t t = 0; t < rows; ++t) {
      const double sum = std::inner_product(column.begin(), column.end(), x.begin() + t * k, 0.0);
      y[static_cast<size_t>(t * n + j)] = round ? rounded(sum) : sum;
    }
  }
  return y;
}

Reference::Rows Reference::embed(std::span<const int32_t> tokens) const {
  Rows x;
  for (const int32_t token : tokens) {
    for (int64_t i = 0; i < config_.hidden; ++i) {
      x.push_back(value(weights_.embedding, int64_t{token} * config_.hidden + i));
    }
  }
  return x;
}

void Reference::rotate(Rows& heads, int64_t head_count) const {
  const int64_t head_dim = config_.head_dim, half = head_dim / 2;
  const double factor = config_.rope.yarn_attention_factor != 0.0
                            ? config_.rope.yarn_attention_factor
                            : 0.1 * std::log(config_.rope.yarn_factor) + 1.0;
  const double magnitude = config_.rope.yarn ? factor : 1.0;
  const int64_t rows = static_cast<int64_t>(heads.size()) / (head_count * head_dim);
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t h = 0; h < head_count; ++h) {
      double* head = heads.data() + (t * head_count + h) * head_dim;
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) * inverse_frequency(config_.rope, i, head_dim);
        const double c = std::cos(angle) * magnitude, s = std::sin(angle) * magnitude;
        const double a = head[i], b = head[half + i];
        head[i] = rounded(a * c - b * s);
        head[half + i] = rounded(b * c + a * s);
      }
    }
  }
}

Reference::Rows Reference::attention(const LayerWeights& w, const Rows& x) const {
  const int64_t head_dim = config_.head_dim, group = config_.q_heads / config_.kv_heads;
  const int64_t q_width = config_.q_heads * head_dim, kv_width = config_.kv_heads * head_dim;
  Rows q = norm(linear(x, w.q, 0, true), w.q_norm, head_dim, false);
  Rows k = norm(linear(x, w.k, 0, true), w.k_norm, head_dim, false);
  const Rows v = linear(x, w.v, 0, true);
  rotate(q, config_.q_heads);
  rotate(k, config_.kv_heads);
  const int64_t rows = static_cast<int64_t>(q.size()) / q_width;
  Rows y(q.size(), 0.0);
  std::vector<double> p(static_cast<size_t>(rows));
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t h = 0; h < config_.q_heads; ++h) {
      const double* query = q.data() + t * q_width + h * head_dim;
      const int64_t kv_head = h / group * head_dim;
      for (int64_t j = 0; j <= t; ++j) {
        p[static_cast<size_t>(j)] =
            std::inner_product(query, query + head_dim, k.data() + j * kv_width + kv_head, 0.0) /
            std::sqrt(static_cast<double>(head_dim));
      }
      const double highest = *std::max_element(p.begin(), p.begin() + t + 1);
      double sum = 0;
      for (int64_t j = 0; j <= t; ++j) {
        sum += p[static_cast<size_t>(j)] = std::exp(p[static_cast<size_t>(j)] - highest);
      }
      double* out = y.data() + t * q_width + h * head_dim;
      for (int64_t j = 0; j <= t; ++j) {
        const double* values = v.data() + j * kv_width + kv_head;
        for (int64_t i = 0; i < head_dim; ++i)
          out[i] += p[static_cast<size_t>(j)] / sum * values[i];
      }
      for (int64_t i = 0; i < head_dim; ++i) out[i] = rounded(out[i]);
    }
  }
  return linear(y, w.o, 0, true);
}

Reference::Rows Reference::dense(const DenseMlpWeights& w, const Rows& x) const {
  Rows gate = linear(x, w.gate, 0, true);
  const Rows up = linear(x, w.up, 0, true);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = rounded(silu(gate[i]) * up[i]);
  return linear(gate, w.down, 0, true);
}

Reference::Rows Reference::moe(const MoeWeights& w, const Rows& x) const {
  const int64_t hidden = config_.hidden;
  const Rows logits = linear(x, w.router, 0, false);
  Rows y(x.size(), 0.0);
  for (int64_t t = 0; t * hidden < static_cast<int64_t>(x.size()); ++t) {
    const double* row = logits.data() + t * config_.experts;
    std::vector<int64_t> order(static_cast<size_t>(config_.experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return row[a] > row[b]; });
    const double highest = row[order[0]];
    double all = 0, chosen = 0;
    for (int64_t e = 0; e < config_.experts; ++e) all += std::exp(row[e] - highest);
    for (int32_t k = 0; k < config_.experts_per_token; ++k) {
      chosen += std::exp(row[order[static_cast<size_t>(k)]] - highest);
    }
    const Rows in(x.begin() + t * hidden, x.begin() + (t + 1) * hidden);
    for (int32_t k = 0; k < config_.experts_per_token; ++k) {
      const int64_t e = order[static_cast<size_t>(k)];
      const double weight = std::exp(row[e] - highest) / (config_.norm_topk_prob ? chosen : all);
      Rows gate = linear(in, w.gate, e, false);
      const Rows up = linear(in, w.up, e, false);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = rounded(silu(gate[i]) * up[i]);
      const Rows out = linear(gate, w.down, e, false);
      for (int64_t i = 0; i < hidden; ++i) {
        y[static_cast<size_t>(t * hidden + i)] += weight * out[static_cast<size_t>(i)];
      }
    }
  }
  for (double& value_of_y : y) value_of_y = rounded(value_of_y);
  return y;
}

void Reference::add(Rows& x, const Rows& delta) const {
  for (size_t i = 0; i < x.size(); ++i) x[i] = rounded(x[i] + delta[i]);
}

void Reference::layer(const LayerWeights& w, Rows& x) const {
  add(x, attention(w, norm(x, w.input_norm, config_.hidden, true)));
  const Rows n = norm(x, w.post_attention_norm, config_.hidden, true);
  add(x, w.dense ? dense(*w.dense, n) : moe(*w.moe, n));
}

ReferenceOutput Reference::finish(const Rows& x, const Tensor& last_norm) const {
  ReferenceOutput out{.hidden = norm(x, last_norm, config_.hidden, true)};
  out.logits = linear(out.hidden, weights_.lm_head, 0, false);
  return out;
}

ReferenceOutput Reference::forward(std::span<const int32_t> tokens) const {
  Rows x = embed(tokens);
  for (const LayerWeights& w : weights_.layers) layer(w, x);
  return finish(x, weights_.final_norm);
}

ReferenceOutput Reference::mtp(std::span<const double> hidden,
                               std::span<const int32_t> next_tokens) const {
  const auto width = static_cast<size_t>(config_.hidden);
  const MtpWeights& w = *weights_.mtp;
  const Rows e = norm(embed(next_tokens), w.norm_embedding, config_.hidden, true);
  const Rows n = norm(Rows(hidden.begin(), hidden.end()), w.norm_hidden, config_.hidden, true);
  Rows pair;
  for (size_t t = 0; t < next_tokens.size(); ++t) {
    pair.insert(pair.end(), e.begin() + static_cast<int64_t>(t * width),
                e.begin() + static_cast<int64_t>((t + 1) * width));
    pair.insert(pair.end(), n.begin() + static_cast<int64_t>(t * width),
                n.begin() + static_cast<int64_t>((t + 1) * width));
  }
  Rows x = linear(pair, w.fc, 0, true);
  layer(w.layer, x);
  return finish(x, w.norm);
}

}  // namespace tandem::model
