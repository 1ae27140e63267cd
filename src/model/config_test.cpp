// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/safetensors_test_files.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using json = nlohmann::json;

// Qwen3-30B-A3B, as published.
json moe_30b() {
  return {{"architectures", {"Qwen3MoeForCausalLM"}},
          {"model_type", "qwen3_moe"},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", 151643},
          {"eos_token_id", 151645},
          {"decoder_sparse_step", 1},
          {"head_dim", 128},
          {"hidden_act", "silu"},
          {"hidden_size", 2048},
          {"initializer_range", 0.02},
          {"intermediate_size", 6144},
          {"max_position_embeddings", 40960},
          {"max_window_layers", 48},
          {"mlp_only_layers", json::array()},
          {"moe_intermediate_size", 768},
          {"norm_topk_prob", true},
          {"num_attention_heads", 32},
          {"num_experts", 128},
          {"num_experts_per_tok", 8},
          {"num_hidden_layers", 48},
          {"num_key_value_heads", 4},
          {"rms_norm_eps", 1e-06},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000.0},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"use_sliding_window", false},
          {"vocab_size", 151936}};
}

json dense_600m() {
  json c = moe_30b();
  for (const char* field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
                            "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"}) {
    c.erase(field);
  }
  c.update({{"model_type", "qwen3"},
            {"hidden_size", 1024},
            {"num_hidden_layers", 28},
            {"num_attention_heads", 16},
            {"num_key_value_heads", 8},
            {"intermediate_size", 3072},
            {"tie_word_embeddings", true}});
  return c;
}

ModelConfig accepted(const json& config) {
  auto parsed = parse_config(config.dump(), "config.json");
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().text);
  return parsed.ok() ? std::move(parsed).value() : ModelConfig{};
}

Error refused(const json& config) {
  const auto parsed = parse_config(config.dump(), "config.json");
  EXPECT_FALSE(parsed.ok());
  const Error error = parsed.ok() ? Error{} : parsed.error();
  EXPECT_THAT(error.text, HasSubstr("config.json"));
  return error;
}

// The published config with one field changed.
Error refused_with(const char* field, const json& value) {
  json c = moe_30b();
  c[field] = value;
  const Error error = refused(c);
  EXPECT_THAT(error.text, HasSubstr(field)) << value;
  return error;
}

TEST(Config, ReadsThePublishedMoeConfig) {
  const ModelConfig c = accepted(moe_30b());
  EXPECT_EQ(c.family, Family::kQwen3Moe);
  EXPECT_EQ(c.hidden, 2048);
  EXPECT_EQ(c.layers, 48);
  EXPECT_EQ(c.q_heads, 32);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.experts, 128);
  EXPECT_EQ(c.experts_per_token, 8);
  EXPECT_EQ(c.moe_intermediate, 768);
  EXPECT_TRUE(c.norm_topk_prob);
  EXPECT_EQ(c.layer_is_moe, std::vector<bool>(48, true));
  EXPECT_EQ(c.vocab, 151936);
  EXPECT_EQ(c.max_position, 40960);
  EXPECT_EQ(c.rms_norm_eps, 1e-6F);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_FALSE(c.rope.yarn);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(c.mtp_layers, 0);
  EXPECT_EQ(c.eos_ids, std::vector<int32_t>{151645});
  EXPECT_EQ(c.parameter_count(), 30'532'122'624);
  EXPECT_EQ(c.kv_bytes_per_token(), 98'304);
}

TEST(Config, CountsTheParametersOfTheOtherPublishedModels) {
  json c = moe_30b();
  c.update({{"hidden_size", 4096},
            {"num_hidden_layers", 94},
            {"num_attention_heads", 64},
            {"moe_intermediate_size", 1536}});
  EXPECT_EQ(accepted(c).parameter_count(), 235'093'634'560);
  EXPECT_EQ(accepted(c).kv_bytes_per_token(), 192'512);
  c.update({{"hidden_size", 6144},
            {"num_hidden_layers", 62},
            {"num_attention_heads", 96},
            {"num_key_value_heads", 8},
            {"moe_intermediate_size", 2560},
            {"num_experts", 160},
            {"qkv_bias", false},
            {"use_qk_norm", true},
            {"shared_expert_intermediate_size", 0}});
  EXPECT_EQ(accepted(c).parameter_count(), 480'154'875'392);
  const ModelConfig dense = accepted(dense_600m());
  EXPECT_EQ(dense.family, Family::kQwen3);
  EXPECT_TRUE(dense.tie_word_embeddings);
  EXPECT_EQ(dense.experts, 0);
  EXPECT_EQ(dense.parameter_count(), 596'049'920);
}

TEST(Config, ReadsNestedTextConfig) {
  json text = moe_30b();
  text.erase("tie_word_embeddings");
  text["eos_token_id"] = 1;
  const json c{{"model_type", "qwen3_moe"},
               {"text_config", text},
               {"tie_word_embeddings", true},
               {"eos_token_id", {2, 3}},
               {"vision_config", {{"depth", 27}}}};
  const ModelConfig parsed = accepted(c);
  EXPECT_EQ(parsed.layers, 48);
  EXPECT_TRUE(parsed.tie_word_embeddings);
  EXPECT_EQ(parsed.eos_ids, (std::vector<int32_t>{1, 2, 3}));
  json bad = c;
  bad["text_config"]["hidden_size"] = 0;
  EXPECT_THAT(refused(bad).text, HasSubstr("field 'text_config.hidden_size' is 0"));
}

TEST(Config, RefusesOtherFamiliesByName) {
  for (const char* type : {"qwen3_next", "qwen3_5", "qwen3_5_moe", "llama", "qwen2"}) {
    const Error error = refused_with("model_type", type);
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.text, HasSubstr(type));
  }
  json nested{{"model_type", "qwen3_5_moe"}, {"text_config", moe_30b()}};
  nested["text_config"]["model_type"] = "qwen3_5_moe_text";
  EXPECT_THAT(refused(nested).text, HasSubstr("'qwen3_5_moe_text'"));
  nested["text_config"].erase("model_type");
  EXPECT_THAT(refused(nested).text, HasSubstr("'qwen3_5_moe'"));
  json none = moe_30b();
  none.erase("model_type");
  EXPECT_THAT(refused(none).text, HasSubstr("'model_type' is missing"));
}

TEST(Config, RefusesQuantisedCheckpointsByMethod) {
  const Error error = refused_with("quantization_config", {{"quant_method", "fp8"}});
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.text, HasSubstr("quant_method 'fp8'"));
  EXPECT_THAT(refused_with("quantization_config", json::object()).text, HasSubstr("(not named)"));
  json c = moe_30b();
  c["quantization_config"] = nullptr;
  accepted(c);
}

TEST(Config, RefusesVariantsThatTheForwardPassLacks) {
  for (const auto& [field, value] : std::vector<std::pair<const char*, json>>{
           {"hidden_act", "gelu"},
           {"attention_bias", true},
           {"qkv_bias", true},
           {"use_sliding_window", true},
           {"use_qk_norm", false},
           {"shared_expert_intermediate_size", 512},
           {"layer_types", {"full_attention", "linear_attention"}}}) {
    EXPECT_EQ(refused_with(field, value).code, ErrorCode::kUnsupported) << field;
  }
  refused_with("layer_types", {"full_attention"});  // one entry, 48 layers
  refused_with("layer_types", "full_attention");
  json c = moe_30b();
  c["layer_types"] = std::vector<std::string>(48, "full_attention");
  accepted(c);
}

TEST(Config, EveryNumberIsBounded) {
  const std::vector<const char*> counts{
      "hidden_size", "num_hidden_layers", "num_attention_heads",    "num_key_value_heads",
      "head_dim",    "num_experts",       "num_experts_per_tok",    "moe_intermediate_size",
      "vocab_size",  "intermediate_size", "max_position_embeddings"};
  for (const char* field : counts) {
    for (const json& value : std::vector<json>{0,
                                               -1,
                                               int64_t{1} << 31,
                                               INT64_MAX,
                                               UINT64_MAX,
                                               1.5,
                                               2.0,
                                               "8",
                                               true,
                                               {1},
                                               json::object()}) {
      EXPECT_EQ(refused_with(field, value).code, ErrorCode::kInvalidArgument) << field << value;
    }
    json c = moe_30b();
    c.erase(field);
    if (std::string_view(field) == "intermediate_size") {
      accepted(c);  // no dense layer asks for it
    } else {
      EXPECT_THAT(refused(c).text, HasSubstr(fmt::format("'{}' is missing", field)));
    }
  }
  refused_with("num_key_value_heads", 5);
  refused_with("head_dim", 127);
  refused_with("num_experts_per_tok", 129);
  refused_with("rms_norm_eps", 0);
  refused_with("rms_norm_eps", -1e-6);
  refused_with("rms_norm_eps", "1e-6");
  refused_with("mtp_num_hidden_layers", 2);
  refused_with("tie_word_embeddings", 1);
  refused_with("norm_topk_prob", "yes");
  for (const json& value : std::vector<json>{-1, 151936, "x", 1.5, {1, 151936}, {{"a", 1}}}) {
    refused_with("eos_token_id", value);
  }
  refused_with("eos_token_id", std::vector<int>(65, 1));
}

TEST(Config, RefusesModelsLargerThanAnyProductMayBe) {
  json c = moe_30b();
  c.update({{"hidden_size", 1 << 18},
            {"num_hidden_layers", 512},
            {"num_experts", 1024},
            {"moe_intermediate_size", 1 << 20},
            {"num_attention_heads", 4096},
            {"num_key_value_heads", 4096},
            {"head_dim", 1024},
            {"vocab_size", 1 << 22}});
  const Error error = refused(c);
  EXPECT_EQ(error.code, ErrorCode::kTooLarge);
  EXPECT_THAT(error.text, HasSubstr("parameters, more than"));
}

TEST(Config, LayerKindsFollowStepAndList) {
  json c = moe_30b();
  c["num_hidden_layers"] = 6;
  c["decoder_sparse_step"] = 2;
  c["mlp_only_layers"] = {3};
  EXPECT_EQ(accepted(c).layer_is_moe, (std::vector<bool>{false, true, false, false, false, true}));
  EXPECT_EQ(accepted(c).intermediate, 6144);
  c.erase("intermediate_size");
  EXPECT_THAT(refused(c).text, HasSubstr("'intermediate_size' is missing"));
  refused_with("decoder_sparse_step", 0);
  refused_with("mlp_only_layers", {48});
  refused_with("mlp_only_layers", {-1});
  refused_with("mlp_only_layers", 3);
}

TEST(Config, ReadsRopeInOrder) {
  json c = moe_30b();
  EXPECT_EQ(accepted(c).rope.theta, 1e6);
  c["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e6}};
  EXPECT_EQ(accepted(c).rope.theta, 5e6);  // stands before rope_theta beside it
  c["rope_parameters"] = {{"partial_rotary_factor", 0.25}};
  EXPECT_EQ(accepted(c).rope.partial_factor, 0.25);
  EXPECT_EQ(accepted(c).rope.theta, 1e6);
  c.erase("rope_parameters");
  c.erase("rope_theta");
  EXPECT_EQ(accepted(c).rope.theta, 10000.0);

  for (const json& theta : std::vector<json>{0, 1, -1e6, 1e13, "1e6", true}) {
    refused_with("rope_theta", theta);
  }
  refused_with("partial_rotary_factor", 0);
  refused_with("partial_rotary_factor", 1.5);
  refused_with("partial_rotary_factor", 0.01);  // 1.28 dimensions
  refused_with("rope_parameters", 5);
  for (const char* type : {"linear", "dynamic", "llama3", "longrope"}) {
    const Error error = refused_with("rope_scaling", {{"rope_type", type}, {"factor", 2.0}});
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.text, HasSubstr(type));
  }
}

TEST(Config, ReadsYarn) {
  json c = moe_30b();
  c["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  RopeConfig rope = accepted(c).rope;
  EXPECT_TRUE(rope.yarn);
  EXPECT_EQ(rope.theta, 1e6);
  EXPECT_EQ(rope.yarn_factor, 4.0);
  EXPECT_EQ(rope.yarn_original_max, 32768.0);
  EXPECT_EQ(rope.yarn_beta_fast, 32.0);
  EXPECT_EQ(rope.yarn_beta_slow, 1.0);
  EXPECT_EQ(rope.yarn_attention_factor, 0.0);
  c["rope_scaling"] = {{"type", "yarn"}, {"factor", 2}, {"attention_factor", 1.5}};
  rope = accepted(c).rope;
  EXPECT_EQ(rope.yarn_original_max, 40960.0);
  EXPECT_EQ(rope.yarn_attention_factor, 1.5);

  const auto yarn = [](json extra) {
    json block{{"rope_type", "yarn"}, {"factor", 4.0}};
    block.update(extra);
    return block;
  };
  EXPECT_THAT(refused_with("rope_scaling", {{"rope_type", "yarn"}}).text,
              HasSubstr("'rope_scaling.factor' is missing"));
  refused_with("rope_scaling", yarn({{"factor", 0.5}}));
  refused_with("rope_scaling", yarn({{"original_max_position_embeddings", 0}}));
  refused_with("rope_scaling", yarn({{"beta_fast", 1.0}}));
  refused_with("rope_scaling", yarn({{"truncate", false}}));
  refused_with("rope_scaling", yarn({{"mscale", 1.0}}));
}

TEST(Config, RefusesBrokenJson) {
  const auto text_of = [](std::string_view text) {
    const auto parsed = parse_config(text, "config.json");
    EXPECT_FALSE(parsed.ok()) << text;
    return parsed.ok() ? std::string() : parsed.error().text;
  };
  std::string nan = moe_30b().dump();
  const size_t at = nan.find("1000000.0");
  nan.replace(at, 9, "NaN");  // as Python writes it
  EXPECT_THAT(text_of(nan), AllOf(HasSubstr("config.json"), HasSubstr("JSON")));
  nan.replace(at, 3, "1e999");
  EXPECT_THAT(text_of(nan), HasSubstr("config.json"));
  for (const char* text : {"", "{", "[]", "null", "1", "\"x\"", "{\"a\":1,}", "\xff"}) {
    EXPECT_THAT(text_of(text), HasSubstr("config.json"));
  }
  std::string twice = moe_30b().dump();
  twice.insert(1, "\"hidden_size\":1,");
  EXPECT_THAT(text_of(twice), HasSubstr("key 'hidden_size' stands twice"));
  EXPECT_THAT(text_of(R"({"x":[{"a":1,"a":2}]})"), HasSubstr("key 'a' stands twice"));
  std::string deep = "{\"a\":";
  deep.append(100000, '[').append(100000, ']');
  EXPECT_THAT(text_of(deep + "}"), HasSubstr("deep"));
}

TEST(ConfigFolder, JoinsEosIdsAndNamesTheModel) {
  const TempFolder folder;
  const std::string name = folder.path().filename().string();
  EXPECT_EQ(load_config(folder.path()).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(load_config(folder / "absent").error().code, ErrorCode::kNotFound);
  folder.write("config.json", moe_30b().dump());
  EXPECT_EQ(load_config(folder.path())->eos_ids, std::vector<int32_t>{151645});
  EXPECT_EQ(load_config(folder.path())->name, name);
  EXPECT_EQ(load_config(folder / "")->name, name);
  folder.write("generation_config.json", R"({"eos_token_id":[151645,151643],"temperature":0.6})");
  EXPECT_EQ(load_config(folder.path())->eos_ids, (std::vector<int32_t>{151643, 151645}));
  folder.write("generation_config.json", R"({"eos_token_id":151936})");
  EXPECT_THAT(load_config(folder.path()).error().text,
              AllOf(HasSubstr("generation_config.json"), HasSubstr("eos_token_id")));
  folder.write("generation_config.json", "{");
  EXPECT_THAT(load_config(folder.path()).error().text, HasSubstr("generation_config.json"));
  std::filesystem::remove(folder / "generation_config.json");
  folder.write("hf_quant_config.json", "{}");
  EXPECT_EQ(load_config(folder.path()).error().code, ErrorCode::kUnsupported);
}

TEST(ConfigFolder, RefusesHugeFilesAndWhatIsNoFile) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  std::filesystem::resize_file(folder / "config.json", 100U << 20U);
  EXPECT_EQ(load_config(folder.path()).error().code, ErrorCode::kTooLarge);
  std::filesystem::remove(folder / "config.json");
  std::filesystem::create_symlink("/dev/zero", folder / "config.json");
  EXPECT_THAT(load_config(folder.path()).error().text, HasSubstr("config.json: is not a regular"));
}

TEST(GenerationDefaults, AreOptionalAndBounded) {
  const TempFolder folder;
  EXPECT_FALSE(load_generation_defaults(folder.path())->temperature.has_value());
  folder.write("generation_config.json",
               R"({"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0,
                   "repetition_penalty":1.05,"eos_token_id":[1,2],"other":"4.51.0"})");
  const GenerationDefaults d = load_generation_defaults(folder.path()).value();
  EXPECT_EQ(d.temperature, 0.6);
  EXPECT_EQ(d.top_k, 20);
  EXPECT_EQ(d.top_p, 0.95);
  EXPECT_EQ(d.min_p, 0.0);
  EXPECT_EQ(d.repetition_penalty, 1.05);
  EXPECT_TRUE(d.do_sample);
  for (const char* bad :
       {R"({"temperature":-1})", R"({"top_p":0})", R"({"top_p":1.01})", R"({"top_k":-1})",
        R"({"min_p":2})", R"({"repetition_penalty":0})", R"({"do_sample":1})"}) {
    folder.write("generation_config.json", bad);
    const auto defaults = load_generation_defaults(folder.path());
    ASSERT_FALSE(defaults.ok()) << bad;
    EXPECT_THAT(defaults.error().text, HasSubstr("generation_config.json: field '"));
  }
}

}  // namespace
}  // namespace tandem::model
