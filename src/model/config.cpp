// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/config_read.h"
#include "model/config_rope.h"
#include "model/safetensors_file.h"

namespace tandem::model {
namespace {

constexpr uint64_t kFileBytesMax = 16U << 20U;
// Far above every published model, and low enough that no product of them leaves int64.
constexpr int64_t kLayersMax = 512;
constexpr int64_t kHiddenMax = 1 << 18;
constexpr int64_t kHeadsMax = 4096;
constexpr int64_t kHeadDimMax = 1024;
constexpr int64_t kIntermediateMax = 1 << 20;
constexpr int64_t kExpertsMax = 1024;
constexpr int64_t kVocabMax = 1 << 22;
constexpr int64_t kPositionsMax = 1 << 24;
constexpr int64_t kParametersMax = int64_t{1} << 43U;
constexpr size_t kEosMax = 64;

Result<int32_t> read_int(const FieldReader& from, std::string_view field, int64_t low,
                         int64_t high) {
  return static_cast<int32_t>(TRY(from.integer(field, low, high)));
}

// A checkpoint whose weights are coded would load as garbage: say so by the method's name.
Result<void> refuse_quantised(const FieldReader& from) {
  for (const char* field : {"quantization_config", "compression_config"}) {
    if (const auto inner = TRY(from.object(field))) {
      return from.error(ErrorCode::kUnsupported, field,
                        fmt::format("asks for quant_method '{}'; only unquantised checkpoints load",
                                    TRY(inner->text_or("quant_method", "(not named)"))));
    }
  }
  return {};
}

Result<Family> read_family(const FieldReader& root, const FieldReader& text) {
  const std::string outer = TRY(root.text_or("model_type", ""));
  const std::string type = TRY(text.text_or("model_type", outer));
  if (type == "qwen3") return Family::kQwen3;
  if (type == "qwen3_moe") return Family::kQwen3Moe;
  if (type.empty()) return root.invalid("model_type", "is missing");
  return text.error(ErrorCode::kUnsupported, "model_type",
                    fmt::format("is '{}'; supported are qwen3 and qwen3_moe", type));
}

// Features that the two families' code has a switch for and no published checkpoint turns on.
Result<void> refuse_variants(const FieldReader& text, int32_t layers) {
  const std::string activation = TRY(text.text_or("hidden_act", "silu"));
  if (activation != "silu") {
    return text.error(ErrorCode::kUnsupported, "hidden_act",
                      fmt::format("is '{}'; supported is silu", activation));
  }
  for (const char* field : {"attention_bias", "qkv_bias", "use_sliding_window"}) {
    if (TRY(text.boolean_or(field, false))) {
      return text.error(ErrorCode::kUnsupported, field, "is true, which is not supported");
    }
  }
  if (!TRY(text.boolean_or("use_qk_norm", true))) {
    return text.error(ErrorCode::kUnsupported, "use_qk_norm", "is false, which is not supported");
  }
  if (TRY(text.integer_or("shared_expert_intermediate_size", 0, kIntermediateMax, 0)) != 0) {
    return text.error(ErrorCode::kUnsupported, "shared_expert_intermediate_size",
                      "is not 0; this family has no shared expert");
  }
  const auto types = text.find("layer_types");
  if (!types) return {};
  simdjson::dom::array list;
  if (types->get(list) != simdjson::SUCCESS) return text.invalid("layer_types", "is not a list");
  for (const simdjson::dom::element item : list) {
    std::string_view type;
    if (item.get(type) != simdjson::SUCCESS || type != "full_attention") {
      return text.error(ErrorCode::kUnsupported, "layer_types",
                        fmt::format("holds {}; supported is \"full_attention\"", quote_json(item)));
    }
  }
  if (list.size() != static_cast<size_t>(layers)) {
    return text.invalid("layer_types",
                        fmt::format("has {} entries for {} layers", list.size(), layers));
  }
  return {};
}

Result<void> read_attention(const FieldReader& text, ModelConfig& config) {
  config.hidden = TRY(read_int(text, "hidden_size", 1, kHiddenMax));
  config.layers = TRY(read_int(text, "num_hidden_layers", 1, kLayersMax));
  config.q_heads = TRY(read_int(text, "num_attention_heads", 1, kHeadsMax));
  config.kv_heads = TRY(read_int(text, "num_key_value_heads", 1, kHeadsMax));
  if (config.q_heads % config.kv_heads != 0) {
    return text.invalid("num_key_value_heads",
                        fmt::format("is {}, which does not divide num_attention_heads {}",
                                    config.kv_heads, config.q_heads));
  }
  config.head_dim = TRY(read_int(text, "head_dim", 2, kHeadDimMax));
  if (config.head_dim % 2 != 0) {
    return text.invalid("head_dim", fmt::format("is {}, not even", config.head_dim));
  }
  return {};
}

// Layer i is sparse unless mlp_only_layers names it or (i + 1) % decoder_sparse_step != 0.
Result<void> read_layer_kinds(const FieldReader& text, ModelConfig& config) {
  const int64_t step = TRY(text.integer_or("decoder_sparse_step", 1, kLayersMax, 1));
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    config.layer_is_moe[static_cast<size_t>(layer)] = (layer + 1) % step == 0;
  }
  const auto dense = text.find("mlp_only_layers");
  if (!dense) return {};
  simdjson::dom::array list;
  if (dense->get(list) != simdjson::SUCCESS)
    return text.invalid("mlp_only_layers", "is not a list");
  for (const simdjson::dom::element item : list) {
    int64_t layer = 0;
    if (item.get(layer) != simdjson::SUCCESS || layer < 0 || layer >= config.layers) {
      return text.invalid("mlp_only_layers", fmt::format("holds {}, not a layer of 0..{}",
                                                         quote_json(item), config.layers - 1));
    }
    config.layer_is_moe[static_cast<size_t>(layer)] = false;
  }
  return {};
}

Result<void> read_mlp(const FieldReader& text, ModelConfig& config) {
  config.layer_is_moe.assign(static_cast<size_t>(config.layers), false);
  if (config.family == Family::kQwen3Moe) {
    config.experts = TRY(read_int(text, "num_experts", 1, kExpertsMax));
    config.experts_per_token = TRY(read_int(text, "num_experts_per_tok", 1, config.experts));
    config.moe_intermediate = TRY(read_int(text, "moe_intermediate_size", 1, kIntermediateMax));
    // Hugging Face's default is false too; every published config says true.
    config.norm_topk_prob = TRY(text.boolean_or("norm_topk_prob", false));
    TRY(read_layer_kinds(text, config));
  }
  const auto& moe = config.layer_is_moe;
  const bool has_dense = std::find(moe.begin(), moe.end(), false) != moe.end();
  if (has_dense || text.has("intermediate_size")) {
    config.intermediate = TRY(read_int(text, "intermediate_size", 1, kIntermediateMax));
  }
  return {};
}

// An id, a list of ids, or nothing.
Result<void> add_eos_ids(const FieldReader& from, ModelConfig& config) {
  constexpr std::string_view kField = "eos_token_id";
  const auto value = from.find(kField);
  if (!value) return {};
  const auto add = [&](simdjson::dom::element item) -> Result<void> {
    int64_t id = 0;
    if (item.get(id) != simdjson::SUCCESS || id < 0 || id >= config.vocab) {
      return from.invalid(
          kField, fmt::format("holds {}, not an id of 0..{}", quote_json(item), config.vocab - 1));
    }
    config.eos_ids.push_back(static_cast<int32_t>(id));
    return {};
  };
  simdjson::dom::array list;
  if (value->get(list) != simdjson::SUCCESS) {
    TRY(add(*value));
  } else {
    if (list.size() > kEosMax) {
      return from.invalid(kField, fmt::format("has {} ids, more than {}", list.size(), kEosMax));
    }
    for (const simdjson::dom::element item : list) TRY(add(item));
  }
  auto& ids = config.eos_ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return {};
}

int64_t layer_parameters(const ModelConfig& c, bool moe) {
  const int64_t hidden = c.hidden;
  const int64_t heads_out = int64_t{c.q_heads} * c.head_dim;
  const int64_t attention =
      2 * hidden * heads_out + 2 * hidden * c.kv_heads * c.head_dim + 2 * int64_t{c.head_dim};
  const int64_t mlp =
      moe ? c.experts * (hidden + 3 * hidden * c.moe_intermediate) : 3 * hidden * c.intermediate;
  return attention + mlp + 2 * hidden;
}

constexpr const char* kConfigFile = "config.json";
constexpr const char* kGenerationFile = "generation_config.json";

}  // namespace

int64_t ModelConfig::parameter_count() const {
  int64_t count = int64_t{vocab} * hidden * (tie_word_embeddings ? 1 : 2) + hidden;
  for (const bool moe : layer_is_moe) count += layer_parameters(*this, moe);
  return count;
}

int64_t ModelConfig::kv_bytes_per_token() const {
  return int64_t{2} * layers * kv_heads * head_dim * static_cast<int64_t>(sizeof(uint16_t));
}

Result<ModelConfig> parse_config(std::string_view json, std::string_view file_name) {
  const JsonDocument document = TRY(JsonDocument::parse(json, file_name));
  const FieldReader root(document.root(), file_name);
  const auto nested = TRY(root.object("text_config"));
  const FieldReader& text = nested ? *nested : root;

  ModelConfig config;
  config.family = TRY(read_family(root, text));
  TRY(refuse_quantised(root));
  TRY(refuse_quantised(text));
  TRY(read_attention(text, config));
  TRY(refuse_variants(text, config.layers));
  TRY(read_mlp(text, config));
  config.vocab = TRY(read_int(text, "vocab_size", 1, kVocabMax));
  config.max_position = TRY(read_int(text, "max_position_embeddings", 1, kPositionsMax));
  config.rms_norm_eps = static_cast<float>(TRY(text.number_or("rms_norm_eps", 1e-12, 0.1, 1e-6)));
  config.rope = TRY(read_rope(text, config.head_dim, config.max_position));
  const bool tied = TRY(root.boolean_or("tie_word_embeddings", false));
  config.tie_word_embeddings = TRY(text.boolean_or("tie_word_embeddings", tied));
  config.mtp_layers = static_cast<int32_t>(TRY(text.integer_or("mtp_num_hidden_layers", 0, 1, 0)));
  TRY(add_eos_ids(root, config));
  TRY(add_eos_ids(text, config));
  if (config.parameter_count() > kParametersMax) {
    return Error{ErrorCode::kTooLarge,
                 fmt::format("{}: describes {} parameters, more than {}", file_name,
                             config.parameter_count(), kParametersMax),
                 std::string(file_name)};
  }
  return config;
}

Result<ModelConfig> load_config(const std::filesystem::path& model_dir) {
  const FileHandle folder = TRY(open_folder(model_dir));
  const auto text = TRY(read_small_file(folder, kConfigFile, kFileBytesMax));
  if (!text) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: has no {}", model_dir.string(), kConfigFile), kConfigFile};
  }
  ModelConfig config = TRY(parse_config(*text, kConfigFile));

  // Older quantised releases say so only here.
  constexpr const char* kQuantFile = "hf_quant_config.json";
  if (const auto quant = TRY(read_small_file(folder, kQuantFile, kFileBytesMax))) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{}: the checkpoint is quantised; only unquantised ones load", kQuantFile),
        kQuantFile};
  }
  if (const auto generation = TRY(read_small_file(folder, kGenerationFile, kFileBytesMax))) {
    const JsonDocument document = TRY(JsonDocument::parse(*generation, kGenerationFile));
    TRY(add_eos_ids(FieldReader(document.root(), kGenerationFile), config));
  }
  const std::filesystem::path absolute = std::filesystem::absolute(model_dir).lexically_normal();
  config.name = (absolute.has_filename() ? absolute : absolute.parent_path()).filename().string();
  return config;
}

Result<GenerationDefaults> load_generation_defaults(const std::filesystem::path& model_dir) {
  const FileHandle folder = TRY(open_folder(model_dir));
  GenerationDefaults defaults;
  const auto text = TRY(read_small_file(folder, kGenerationFile, kFileBytesMax));
  if (!text) return defaults;
  const JsonDocument document = TRY(JsonDocument::parse(*text, kGenerationFile));
  const FieldReader fields(document.root(), kGenerationFile);
  // The same ranges that a request's fields have.
  defaults.temperature = TRY(fields.optional_number("temperature", 0.0, 2.0));
  defaults.top_p = TRY(fields.optional_number("top_p", 1e-6, 1.0));
  defaults.min_p = TRY(fields.optional_number("min_p", 0.0, 1.0));
  defaults.repetition_penalty = TRY(fields.optional_number("repetition_penalty", 1e-2, 1e2));
  if (fields.has("top_k")) {
    defaults.top_k = static_cast<int32_t>(TRY(fields.integer("top_k", 0, kVocabMax)));
  }
  defaults.do_sample = TRY(fields.boolean_or("do_sample", true));
  return defaults;
}

}  // namespace tandem::model
