// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/safetensors_test_files.h"
#include "model/weights_convert.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelConfig small_moe() {
  ModelConfig c;
  c.family = Family::kQwen3Moe;
  c.hidden = 16;
  c.layers = 3;
  c.q_heads = 4;
  c.kv_heads = 1;
  c.head_dim = 6;  // heads * head_dim differs from hidden
  c.intermediate = 10;
  c.experts = 5;
  c.experts_per_token = 2;
  c.moe_intermediate = 7;
  c.layer_is_moe = {true, false, true};
  c.vocab = 33;
  c.max_position = 128;
  c.mtp_layers = 1;
  return c;
}

ModelConfig small_dense_tied() {
  ModelConfig c = small_moe();
  c.family = Family::kQwen3;
  c.experts = c.experts_per_token = c.moe_intermediate = 0;
  c.layer_is_moe = {false, false, false};
  c.tie_word_embeddings = true;
  c.mtp_layers = 0;
  return c;
}

Result<Weights> load(const ModelConfig& config, const std::vector<TestTensor>& tensors,
                     const WeightOptions& options = {}) {
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_file(tensors));
  const Checkpoint checkpoint = TRY(Checkpoint::open(folder.path()));
  return load_weights(config, checkpoint, options);
}

std::string load_error(const ModelConfig& config, const std::vector<TestTensor>& tensors) {
  const auto weights = load(config, tensors);
  return weights.ok() ? "accepted" : weights.error().text;
}

void expect_same_storage(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.storage.size(), b.storage.size());
  for (size_t i = 0; i < a.storage.size(); ++i) {
    ASSERT_EQ(a.storage[i].bytes(), b.storage[i].bytes());
    EXPECT_EQ(std::memcmp(a.storage[i].data(), b.storage[i].data(), a.storage[i].bytes()), 0) << i;
  }
}

TestTensor& named(std::vector<TestTensor>& tensors, std::string_view name) {
  for (TestTensor& t : tensors) {
    if (t.name == name) return t;
  }
  CHECK(false, "{}", name);
  return tensors.front();
}

TEST(Weights, WhatIsStoredComesBackBitForBit) {
  for (const ModelConfig& config : {small_moe(), small_dense_tied()}) {
    const auto loaded = load(config, random_tensors(config, 1));
    ASSERT_TRUE(loaded.ok()) << loaded.error().text;
    expect_same_storage(*loaded, random_weights(config, 1));
  }
}

TEST(Weights, ViewsHaveTheConfigsShapes) {
  const Weights w = random_weights(small_moe(), 3);
  EXPECT_EQ(w.embedding.describe(), "bf16 [33,16]");
  EXPECT_EQ(w.lm_head.describe(), "bf16 [33,16]");
  EXPECT_NE(w.lm_head.data, w.embedding.data);
  ASSERT_EQ(w.layers.size(), 3U);
  const LayerWeights& moe = w.layers[0];
  EXPECT_EQ(moe.q.describe(), "bf16 [24,16]");
  EXPECT_EQ(moe.k.describe(), "bf16 [6,16]");
  EXPECT_EQ(moe.o.describe(), "bf16 [16,24]");
  EXPECT_EQ(moe.q_norm.describe(), "bf16 [6]");
  ASSERT_TRUE(moe.moe.has_value() && !moe.dense.has_value());
  EXPECT_EQ(moe.moe->router.describe(), "bf16 [5,16]");
  EXPECT_EQ(moe.moe->up.describe(), "bf16 [5,7,16]");
  EXPECT_EQ(moe.moe->down.describe(), "bf16 [5,16,7]");
  ASSERT_TRUE(w.layers[1].dense.has_value() && !w.layers[1].moe.has_value());
  EXPECT_EQ(w.layers[1].dense->down.describe(), "bf16 [16,10]");
  ASSERT_TRUE(w.mtp.has_value());
  EXPECT_EQ(w.mtp->fc.describe(), "bf16 [16,32]");
  EXPECT_TRUE(w.mtp->layer.moe.has_value());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(moe.moe->down.data) % 64, 0U);
  const Weights tied = random_weights(small_dense_tied(), 3);
  EXPECT_EQ(tied.lm_head.data, tied.embedding.data);
  EXPECT_FALSE(tied.mtp.has_value());
}

TEST(Weights, EachExpertLandsInItsSlice) {
  const ModelConfig config = small_moe();
  std::vector<TestTensor> tensors = random_tensors(config, 1);
  TestTensor& third = named(tensors, "model.layers.2.mlp.experts.3.down_proj.weight");
  const std::string mark("\x80\x3f", 2);  // 1.0
  third.bytes.replace(0, 2, mark);
  const Weights w = load(config, tensors).value();
  EXPECT_EQ(static_cast<float>(w.layers[2].moe->down.rows(3, 4).as<bf16>()[0]), 1.0F);
}

TEST(Weights, ShardsInAnyOrderLoadTheSame) {
  const ModelConfig config = small_moe();
  const std::vector<TestTensor> tensors = random_tensors(config, 5);
  const TempFolder folder;
  std::array<std::vector<TestTensor>, 3> parts;
  std::vector<std::string> map;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t part = i * 7 % 3;
    parts[part].insert(parts[part].begin(), tensors[i]);
    map.push_back(fmt::format("\"{}\":\"model-{}.safetensors\"", tensors[i].name, part));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    folder.write(fmt::format("model-{}.safetensors", i), safetensors_file(parts[i]));
  }
  folder.write("model.safetensors.index.json",
               fmt::format("{{\"weight_map\":{{{}}}}}", fmt::join(map, ",")));
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  uint64_t last_done = 0, last_total = 0;
  const auto loaded =
      load_weights(config, checkpoint, {.progress = [&](uint64_t done, uint64_t total) {
                     EXPECT_GT(done, last_done);
                     last_done = done;
                     last_total = total;
                   }});
  ASSERT_TRUE(loaded.ok()) << loaded.error().text;
  expect_same_storage(*loaded, random_weights(config, 5));
  EXPECT_EQ(last_done, last_total);
  EXPECT_EQ(last_done, checkpoint.bytes_read());  // every byte once
}

TEST(Weights, UnknownTensorsAreRefusedByName) {
  const ModelConfig config = small_moe();
  const std::vector<TestTensor> good = random_tensors(config, 1);
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.weight_scale_inv", "model.layers.3.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.bias", "model.visual.patch_embed.weight", "extra",
        "model.layers.0.mlp.experts.gate_up_proj", "mtp.layers.1.input_layernorm.weight"}) {
    std::vector<TestTensor> tensors = good;
    tensors.push_back({.name = name, .shape = {1}, .bytes = std::string(2, '\0')});
    EXPECT_THAT(load_error(config, tensors), AllOf(HasSubstr("unknown"), HasSubstr(name)));
  }
  std::vector<TestTensor> many = good;
  for (int i = 0; i < 20; ++i) {
    many.push_back({.name = fmt::format("x{:02}", i), .shape = {0}, .bytes = ""});
  }
  EXPECT_THAT(load_error(config, many),
              AllOf(HasSubstr("20 unknown tensors: x00, "), HasSubstr("x07 and 12 more")));
}

TEST(Weights, EveryMissingTensorIsRefusedByName) {
  const ModelConfig config = small_moe();
  const std::vector<TestTensor> good = random_tensors(config, 1);
  for (const TestTensor& gone : good) {
    std::vector<TestTensor> tensors = good;
    std::erase_if(tensors, [&](const TestTensor& t) { return t.name == gone.name; });
    EXPECT_THAT(load_error(config, tensors), AllOf(HasSubstr("missing"), HasSubstr(gone.name)));
  }
  EXPECT_THAT(load_error(config, {}), HasSubstr("missing tensors"));
  ModelConfig more = config;
  more.layers = 4;
  more.layer_is_moe.push_back(true);
  EXPECT_THAT(load_error(more, good), AllOf(HasSubstr("missing"), HasSubstr("model.layers.3.")));
  ModelConfig fewer = config;
  fewer.experts = 4;
  EXPECT_THAT(load_error(fewer, good), AllOf(HasSubstr("unknown"), HasSubstr("mlp.experts.4.")));
}

TEST(Weights, MtpIsOptionalButNeverHalf) {
  ModelConfig config = small_moe();
  std::vector<TestTensor> tensors = random_tensors(config, 1);
  config.mtp_layers = 0;  // not announced but stored: taken all the same
  EXPECT_TRUE(load(config, tensors).value().mtp.has_value());
  config.mtp_layers = 1;  // announced but not stored
  std::erase_if(tensors, [](const TestTensor& t) { return t.name.starts_with("mtp."); });
  EXPECT_FALSE(load(config, tensors).value().mtp.has_value());
}

TEST(Weights, TiedHeadsMayBeStoredAndAreIgnored) {
  const ModelConfig config = small_dense_tied();
  std::vector<TestTensor> tensors = random_tensors(config, 1);
  const std::string zeros(33 * 16 * 2, '\0');
  tensors.push_back({.name = "lm_head.weight", .shape = {33, 16}, .bytes = zeros});
  const auto loaded = load(config, tensors);
  ASSERT_TRUE(loaded.ok()) << loaded.error().text;
  EXPECT_EQ(loaded->lm_head.data, loaded->embedding.data);
  expect_same_storage(*loaded, random_weights(config, 1));
}

TEST(Weights, WrongShapesAndDtypesNameFileAndTensor) {
  ModelConfig config = small_moe();
  std::vector<TestTensor> tensors = random_tensors(config, 1);
  config.vocab = 32;  // fewer than the embedding's rows
  EXPECT_THAT(load_error(config, tensors),
              AllOf(HasSubstr("model.safetensors: tensor 'model.embed_tokens.weight'"),
                    HasSubstr("has shape [33,16], the config asks for [32,16]")));
  config = small_moe();
  TestTensor& q = named(tensors, "model.layers.1.self_attn.q_proj.weight");
  q.shape = {16, 24};  // transposed
  EXPECT_THAT(load_error(config, tensors), HasSubstr(q.name));
  q.shape = {24, 16, 1};
  EXPECT_THAT(load_error(config, tensors), HasSubstr("[24,16,1]"));
  q.shape = {24, 16};
  q.dtype = "F8_E4M3";
  q.bytes.resize(24 * 16);
  EXPECT_THAT(load_error(config, tensors), AllOf(HasSubstr(q.name), HasSubstr("stored as e4m3")));
}

TEST(Weights, NansAndInfinitiesNameTheTensor) {
  const ModelConfig config = small_moe();
  for (const char* pattern : {"\xc0\x7f", "\x80\x7f", "\x80\xff"}) {  // NaN, +inf, -inf
    std::vector<TestTensor> tensors = random_tensors(config, 1);
    const std::string bad(pattern, 2);
    TestTensor& up = named(tensors, "model.layers.0.mlp.experts.4.up_proj.weight");
    up.bytes.replace(up.bytes.size() - 2, 2, bad).replace(20, 2, bad);
    EXPECT_THAT(load_error(config, tensors),
                AllOf(HasSubstr(up.name), HasSubstr("2 values that are not finite"),
                      HasSubstr("first at element 10")));
    EXPECT_TRUE(load(config, tensors, {.refuse_nan = false}).ok());
  }
}

TEST(Weights, F32AndF16AreRounded) {
  const ModelConfig config = small_moe();
  std::vector<TestTensor> tensors = random_tensors(config, 1);
  TestTensor& norm = named(tensors, "model.norm.weight");
  norm.dtype = "F32";
  norm.bytes.assign(64, '\0');
  const float values[3] = {1.0F + 1.0F / 256, -3.0F, 1e-40F};
  std::memcpy(norm.bytes.data(), values, sizeof(values));
  TestTensor& fc = named(tensors, "model.layers.0.input_layernorm.weight");
  fc.dtype = "F16";
  fc.bytes.replace(0, 6, std::string("\x00\x3c\x01\x00\xff\xfb", 6));  // 1, 2^-24, -65504
  const Weights w = load(config, tensors).value();
  const bf16* f32 = w.final_norm.as<bf16>();
  EXPECT_EQ(f32[0], bf16(values[0]));
  EXPECT_EQ(static_cast<float>(f32[1]), -3.0F);
  const bf16* f16 = w.layers[0].input_norm.as<bf16>();
  EXPECT_EQ(static_cast<float>(f16[0]), 1.0F);
  EXPECT_EQ(static_cast<float>(f16[1]), 0x1p-24F);
  EXPECT_EQ(f16[2], bf16(-65504.0F));
  const float huge = 3.4e38F;  // finite, infinite as bf16
  std::memcpy(norm.bytes.data(), &huge, sizeof(huge));
  EXPECT_THAT(load_error(config, tensors), HasSubstr("model.norm.weight"));
}

TEST(Weights, HalfPrecisionConvertsExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    bf16 out;
    convert_to_bf16(DType::kF16, &half, &out, 1);
    const int exponent = static_cast<int>(bits >> 10 & 0x1f);
    const double mantissa = bits & 0x3ff;
    double value = exponent == 0 ? mantissa * 0x1p-24 : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) value = mantissa == 0 ? INFINITY : NAN;
    if (bits >= 0x8000) value = -value;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(out)));
    } else {
      ASSERT_EQ(out, bf16(static_cast<float>(value))) << bits;
    }
  }
}

TEST(Weights, NamesUnderAnotherPrefixLoad) {
  const ModelConfig config = small_moe();
  std::vector<TestTensor> tensors = random_tensors(config, 1);
  for (TestTensor& t : tensors) {
    if (t.name.starts_with("model.")) t.name.insert(6, "language_model.");
  }
  EXPECT_EQ(load_error(config, tensors), "accepted");
  tensors.push_back({.name = "other.layers.0.input_layernorm.weight", .shape = {0}, .bytes = ""});
  EXPECT_THAT(load_error(config, tensors), HasSubstr("more than one text model"));
}

TEST(Weights, AFileChangedWhileLoadingIsRefused) {
  const ModelConfig config = small_moe();
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_file(random_tensors(config, 1)));
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  const auto loaded = load_weights(config, checkpoint, {.progress = [&](uint64_t, uint64_t) {
                                     std::ofstream(folder / "model.safetensors", std::ios::app)
                                         << 'x';
                                   }});
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().text, HasSubstr("model.safetensors: was changed while it was read"));
}

TEST(Weights, AConfigOfTerabytesDoesNotAskForMemory) {
  ModelConfig config = small_moe();
  config.vocab = 1 << 22;
  config.hidden = 1 << 18;  // the embedding alone: 2 TiB
  EXPECT_THAT(load_error(config, random_tensors(small_moe(), 1)), HasSubstr("the config asks for"));
}

TEST(RandomWeights, AreSeededAndOfSaneSize) {
  const ModelConfig config = small_moe();
  expect_same_storage(random_weights(config, 9), random_weights(config, 9));
  const Weights a = random_weights(config, 9), b = random_weights(config, 10);
  EXPECT_NE(std::memcmp(a.embedding.data, b.embedding.data, a.embedding.bytes()), 0);
  const auto moments = [](const Tensor& t) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < t.count(); ++i) {
      const double x = static_cast<float>(t.as<bf16>()[i]);
      sum += x;
      squares += x * x;
    }
    const double n = static_cast<double>(t.count());
    return std::pair(sum / n, std::sqrt(squares / n - sum / n * sum / n));
  };
  ModelConfig wide = config;
  wide.hidden = 256;
  const Weights w = random_weights(wide, 1);
  const auto [q_mean, q_deviation] = moments(w.layers[0].q);  // 6144 values
  EXPECT_NEAR(q_mean, 0.0, 0.005);
  EXPECT_NEAR(q_deviation, 1.0 / 16, 0.004);
  const auto [norm_mean, norm_deviation] = moments(w.final_norm);
  EXPECT_NEAR(norm_mean, 1.0, 0.03);
  EXPECT_NEAR(norm_deviation, 0.1, 0.02);
}

}  // namespace
}  // namespace tandem::model
