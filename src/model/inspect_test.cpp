// SPDX-License-Identifier: Apache-2.0
#include "model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/safetensors_test_files.h"

namespace tandem::model {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kShipped =
    std::filesystem::path(TANDEM_SOURCE_DIR) / "models" / "tandem-small";

TEST(Inspect, AddsUpTheShippedModel) {
  const auto config = load_config(kShipped);
  ASSERT_TRUE(config.ok()) << config.error().text;
  const auto checkpoint = Checkpoint::open(kShipped);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text;
  // Exactly the weights and three pages and a half of 64 tokens.
  const ModelReport empty = inspect(*config, *checkpoint, {});
  const uint64_t page_bytes = static_cast<uint64_t>(empty.kv_bytes_per_token) * 64;
  const uint64_t enough = empty.weight_bytes + page_bytes * 7 / 2;
  const ModelReport r = inspect(
      *config, *checkpoint,
      {.places = {{"enough", enough}, {"small", empty.weight_bytes - 1}}, .usable_share = 1.0});
  EXPECT_EQ(r.tensor_count, static_cast<int64_t>(checkpoint->names().size()));
  EXPECT_EQ(r.stored_weight_bytes, r.weight_bytes);  // stored as bf16, nothing ignored
  EXPECT_GT(r.file_bytes, r.stored_weight_bytes);
  EXPECT_GT(r.mtp_parameters, 0);
  EXPECT_LT(r.active_parameters, r.parameters);
  EXPECT_EQ(r.kv_bytes_per_token * config->layers,
            config->kv_bytes_per_token() * (config->layers + 1));
  ASSERT_EQ(r.fits.size(), 2U);
  EXPECT_TRUE(r.fits[0].weights_fit);
  EXPECT_EQ(r.fits[0].kv_tokens, 3 * 64);
  EXPECT_FALSE(r.fits[1].weights_fit);
  EXPECT_EQ(r.fits[1].kv_tokens, 0);

  const std::string text = to_text(r);
  for (const char* part : {"tandem-small", "qwen3_moe", "model-00001-of-00002.safetensors",
                           "192 KV tokens", "weights do not fit", "; MTP "}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Inspect, TheShippedModelLoads) {
  const auto config = load_config(kShipped);
  const auto checkpoint = Checkpoint::open(kShipped);
  ASSERT_TRUE(config.ok() && checkpoint.ok());
  const auto weights = load_weights(*config, *checkpoint, {});
  ASSERT_TRUE(weights.ok()) << weights.error().text;
  EXPECT_TRUE(weights->mtp.has_value());
}

TEST(Inspect, ActiveParametersOfThePublishedModel) {
  // Qwen3-30B-A3B by its config; only the counts matter, so any checkpoint will do.
  ModelConfig c;
  c.hidden = 2048;
  c.layers = 48;
  c.q_heads = 32;
  c.kv_heads = 4;
  c.head_dim = 128;
  c.experts = 128;
  c.experts_per_token = 8;
  c.moe_intermediate = 768;
  c.layer_is_moe.assign(48, true);
  c.vocab = 151936;
  c.max_position = 40960;
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_file({}));
  const ModelReport r =
      inspect(c, Checkpoint::open(folder.path()).value(), {.places = common_gpus()});
  EXPECT_EQ(r.parameters, 30'532'122'624);
  EXPECT_EQ(r.active_parameters, 3'353'032'704);  // less 48 layers x 120 experts x 3 x 2048 x 768
  EXPECT_EQ(r.mtp_parameters, 0);
  EXPECT_EQ(r.weight_bytes, 61'064'245'248U);
  // 80 GB * 0.9 - weights = 10.94 GB, at 98,304 bytes a token.
  EXPECT_EQ(r.fits[0].kv_tokens, 111'232);
  EXPECT_EQ(r.fits[0].full_contexts, 2);
}

}  // namespace
}  // namespace tandem::model
