// SPDX-License-Identifier: Apache-2.0
// A model's config.json as one validated struct. The loader fills it (config.cpp), everybody above
// reads it. Source: Hugging Face config files of Qwen3 and Qwen3-MoE; docs/model-files.md lists
// what is accepted and refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace tandem::model {

enum class Family : uint8_t { kQwen3, kQwen3Moe };

struct RopeConfig {
  double theta = 10000.0;
  double partial_factor = 1.0;  // share of head_dim that rotates
  bool yarn = false;            // Peng et al. 2023, as Hugging Face reads it
  double yarn_factor = 1.0;
  double yarn_original_max = 0.0;
  double yarn_beta_fast = 32.0;
  double yarn_beta_slow = 1.0;
  double yarn_attention_factor = 0.0;  // 0: from yarn_factor
};

struct ModelConfig {
  Family family = Family::kQwen3Moe;
  int32_t hidden = 0;  // H
  int32_t layers = 0;
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;           // D; never hidden / q_heads
  int32_t intermediate = 0;       // dense MLP
  int32_t experts = 0;            // E; 0 for dense
  int32_t experts_per_token = 0;  // K
  int32_t moe_intermediate = 0;
  bool norm_topk_prob = true;
  std::vector<bool> layer_is_moe;  // [layers]
  int32_t vocab = 0;               // V, rows of the embedding
  int32_t max_position = 0;
  float rms_norm_eps = 1e-6F;
  RopeConfig rope;
  bool tie_word_embeddings = false;
  int32_t mtp_layers = 0;        // announced; the checkpoint may still lack them
  std::vector<int32_t> eos_ids;  // config.json and generation_config.json together
  std::string name;              // folder name, the default model id

  [[nodiscard]] int64_t parameter_count() const;     // without MTP
  [[nodiscard]] int64_t kv_bytes_per_token() const;  // bf16, all layers
};

// generation_config.json's defaults, all optional.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  bool do_sample = true;
};

// Reads config.json (flat or nested text_config) and generation_config.json where present. Errors
// name file and field: kNotFound without a config.json, kUnsupported for another family, a
// quantised checkpoint or a feature that the forward pass lacks, kTooLarge, kDataLoss for broken
// JSON, else kInvalidArgument. parse_config leaves `name` empty.
Result<ModelConfig> load_config(const std::filesystem::path& model_dir);
Result<ModelConfig> parse_config(std::string_view json, std::string_view file_name);
Result<GenerationDefaults> load_generation_defaults(const std::filesystem::path& model_dir);

}  // namespace tandem::model
