// SPDX-License-Identifier: Apache-2.0
// A model with its cache and scratch, driven one sequence at a time: for forward_test,
// forward_golden_test and forward_bench.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/test_support.h"
#include "model/forward.h"

namespace tandem::model {

struct NamedConfig {
  std::string name;
  ModelConfig config;
};
// Small ones of every kind: MoE with grouped heads, one KV head with a tied head and YaRN, dense,
// mixed dense and MoE with odd widths.
[[nodiscard]] std::vector<NamedConfig> test_configs();
// The shape of models/tandem-small: H 256, 4 layers, 8 query and 4 KV heads of 128, 16 experts of
// 128, top-4, V 4096, one MTP layer.
[[nodiscard]] ModelConfig small_moe_config();

[[nodiscard]] std::vector<int32_t> random_tokens(const ModelConfig& config, int64_t count,
                                                 uint64_t seed);

struct Logits {
  int64_t vocab = 0;
  std::vector<float> values;  // [R,V]
  std::vector<float> hidden;  // [R,H]

  [[nodiscard]] bool same_bits(const Logits& other) const;
  [[nodiscard]] bool same_row(size_t row, const Logits& other, size_t other_row) const;
  [[nodiscard]] std::span<const float> row(size_t i) const {
    return {values.data() + i * static_cast<size_t>(vocab), static_cast<size_t>(vocab)};
  }
};

class Engine {
 public:
  static constexpr int32_t kRowsMax = 256;
  static constexpr int32_t kPages = 64;

  Engine(const ModelConfig& config, const Weights& weights, int32_t page_tokens,
         kernels::TestTeam* team = nullptr);

  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] const Exec& exec() const { return exec_->exec; }
  [[nodiscard]] int32_t page_tokens() const { return page_tokens_; }
  [[nodiscard]] size_t scratch_bytes() const;

  // Each call uses a fresh cache full of NaN and scattered pages.
  [[nodiscard]] Logits all_logits(std::span<const int32_t> tokens) const;
  [[nodiscard]] Logits chunked_logits(std::span<const int32_t> tokens,
                                      std::span<const int32_t> chunks) const;
  [[nodiscard]] Logits some_logits(std::span<const int32_t> tokens,
                                   std::span<const int32_t> rows) const;
  [[nodiscard]] Logits mtp_logits(std::span<const float> hidden,
                                  std::span<const int32_t> next_tokens) const;

  // One forward pass; logits and hidden of batch.logit_rows.
  [[nodiscard]] Logits run(const Batch& batch, const KvStore& kv) const;

 private:
  int32_t page_tokens_;
  std::unique_ptr<kernels::TestExec> exec_;
  Model model_;
};

[[nodiscard]] KvStore poisoned_store(const KvLayout& layout, int32_t pages);
// `count` page ids out of [0, pages), in a scrambled order.
[[nodiscard]] std::vector<PageId> scattered_pages(int32_t pages, size_t count, uint64_t seed);

// Runs several sequences through random mixed batches (chunks and single rows) that share one
// cache, and compares every row with its sequence run alone. Empty, or what differed.
[[nodiscard]] std::string mixed_batch_difference(const Engine& engine, uint64_t seed);

}  // namespace tandem::model
