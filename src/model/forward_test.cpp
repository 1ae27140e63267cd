// SPDX-License-Identifier: Apache-2.0
#include "model/forward.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/test_support.h"
#include "model/forward_reference.h"
#include "model/forward_test_support.h"

namespace tandem::model {
namespace {

using kernels::TestExec;
using kernels::TestTeam;
using kernels::Worst;

// Monte Carlo arithmetic: the largest deviation in kRuns noisy runs, per logit, pooled over a row
// (a row's logits share the noise of its hidden state), estimates the error's scale; the engine's
// own rounding is one more draw. The largest of V * kRuns draws of a row bounds one more draw of V
// with probability kRuns / (kRuns + 1) a row; a factor 3 makes a false alarm a matter of a normal
// variable beyond 3 times the largest of hundreds, below 1e-9. A wrong term anywhere is tens of
// times larger. f32 sums add K * 2^-24 relative, under 1 % of that, inside the factor.
constexpr int kRuns = 6;
constexpr double kFactor = 3.0;

std::vector<double> row_bounds(const ReferenceOutput& exact, std::span<const ReferenceOutput> noisy,
                               int64_t vocab) {
  std::vector<double> bounds(exact.logits.size() / static_cast<size_t>(vocab), 0.0);
  for (const ReferenceOutput& run : noisy) {
    for (size_t i = 0; i < exact.logits.size(); ++i) {
      double& bound = bounds[i / static_cast<size_t>(vocab)];
      bound = std::max(bound, kFactor * std::abs(run.logits[i] - exact.logits[i]));
    }
  }
  return bounds;
}

class ForwardCases : public testing::TestWithParam<NamedConfig> {};

TEST_P(ForwardCases, LogitsWithinTheDerivedBoundOfTheDoubleReference) {
  const ModelConfig& config = GetParam().config;
  const Weights weights = random_weights(config, 7);
  const std::vector<int32_t> tokens = random_tokens(config, 33, 11);
  const ReferenceOutput exact = Reference(config, weights, nullptr).forward(tokens);
  std::vector<ReferenceOutput> noisy;
  Rng noise(5);
  for (int i = 0; i < kRuns; ++i)
    noisy.push_back(Reference(config, weights, &noise).forward(tokens));
  const std::vector<double> bounds = row_bounds(exact, noisy, config.vocab);

  const Engine engine(config, weights, 16);
  const Logits got = engine.all_logits(tokens);
  Worst worst;
  double largest = 0;
  for (size_t i = 0; i < exact.logits.size(); ++i) {
    worst.see(static_cast<int64_t>(i), static_cast<double>(got.values[i]), exact.logits[i],
              bounds[i / static_cast<size_t>(config.vocab)]);
    largest = std::max(largest, std::abs(exact.logits[i]));
  }
  EXPECT_TRUE(worst.ok()) << worst.text();
  // A bound as large as the logits themselves would prove nothing.
  EXPECT_LT(*std::max_element(bounds.begin(), bounds.end()), largest) << worst.text();
}

class ForwardMtpCases : public ForwardCases {};

TEST_P(ForwardMtpCases, MtpLogitsWithinTheDerivedBound) {
  const ModelConfig& config = GetParam().config;
  const Weights weights = random_weights(config, 8);
  const std::vector<int32_t> tokens = random_tokens(config, 21, 12);
  const std::span<const int32_t> next(tokens.data() + 1, tokens.size() - 1);
  const Engine engine(config, weights, 16);
  const Logits trunk = engine.all_logits({tokens.data(), tokens.size() - 1});

  // The reference starts from the engine's own hidden states, so that only the MTP layer counts.
  std::vector<double> hidden(trunk.hidden.begin(), trunk.hidden.end());
  const ReferenceOutput exact = Reference(config, weights, nullptr).mtp(hidden, next);
  std::vector<ReferenceOutput> noisy;
  Rng noise(6);
  for (int i = 0; i < kRuns; ++i) {
    noisy.push_back(Reference(config, weights, &noise).mtp(hidden, next));
  }
  const std::vector<double> bounds = row_bounds(exact, noisy, config.vocab);
  const Logits got = engine.mtp_logits(trunk.hidden, next);
  Worst worst;
  for (size_t i = 0; i < exact.logits.size(); ++i) {
    worst.see(static_cast<int64_t>(i), static_cast<double>(got.values[i]), exact.logits[i],
              bounds[i / static_cast<size_t>(config.vocab)]);
  }
  EXPECT_TRUE(worst.ok()) << worst.text();
}

TEST_P(ForwardCases, ChunksPagesThreadsAndNeighboursChangeNoBit) {
  const ModelConfig& config = GetParam().config;
  const Weights weights = random_weights(config, 9);
  const std::vector<int32_t> tokens = random_tokens(config, 150, 13);
  const Engine engine(config, weights, 16);
  const Logits whole = engine.all_logits(tokens);

  EXPECT_TRUE(whole.same_bits(engine.all_logits(tokens))) << "repeat";
  EXPECT_TRUE(whole.same_bits(Engine(config, weights, 64).all_logits(tokens))) << "pages of 64";
  for (const std::vector<int32_t>& chunks :
       {std::vector<int32_t>{1, 149}, {64, 64, 22}, {7, 1, 1, 90, 51}, {127, 1, 1, 1, 20}}) {
    EXPECT_TRUE(whole.same_bits(engine.chunked_logits(tokens, chunks)))
        << fmt::format("chunks from {}, {}", chunks[0], chunks[1]);
  }
  EXPECT_TRUE(whole.same_bits(engine.chunked_logits(tokens, std::vector<int32_t>(150, 1))))
      << "token by token";
  TestTeam team(3);
  EXPECT_TRUE(whole.same_bits(Engine(config, weights, 16, &team).all_logits(tokens))) << "threads";

  // Only the last row's logits: the trimmed last layer gives the same.
  const Logits last = engine.some_logits(tokens, std::vector<int32_t>{3, 4, 149});
  for (const auto& [row, of] : {std::pair<size_t, size_t>{0, 3}, {1, 4}, {2, 149}}) {
    EXPECT_TRUE(last.same_row(row, whole, of)) << "row " << of;
  }
}

TEST_P(ForwardCases, MixedBatchesEqualTheSequencesAlone) {
  const ModelConfig& config = GetParam().config;
  const Weights weights = random_weights(config, 10);
  const Engine engine(config, weights, 16);
  for (const uint64_t seed : {1, 2, 3}) {
    EXPECT_EQ(mixed_batch_difference(engine, seed), "") << "seed " << seed;
  }
}

std::vector<NamedConfig> configs_with_mtp() {
  std::vector<NamedConfig> out = test_configs();
  std::erase_if(out, [](const NamedConfig& c) { return c.config.mtp_layers == 0; });
  return out;
}

std::string name_of(const testing::TestParamInfo<NamedConfig>& param_info) {
  return param_info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Configs, ForwardCases, testing::ValuesIn(test_configs()), name_of);
INSTANTIATE_TEST_SUITE_P(Configs, ForwardMtpCases, testing::ValuesIn(configs_with_mtp()), name_of);

TEST(Forward, RefusesDimensionsThatTheKernelsCannotRunAndNamesTheField) {
  ModelConfig config = test_configs()[0].config;
  config.hidden = 100;
  const Result<void> refused = Model::supports(config);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "hidden_size");
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

TEST(ForwardDeathTest, ABrokenBatchEndsTheProcess) {
  const ModelConfig config = test_configs()[0].config;
  const Weights weights = random_weights(config, 9);
  const Engine engine(config, weights, 16);
  TestExec exec(engine.scratch_bytes());
  const KvStore kv(engine.model().kv_layout(16), 2);
  const std::vector<int32_t> tokens(20, 1);
  const std::vector<PageId> one_page{PageId{0}};
  const std::vector<SequenceRows> sequences{{.row_count = 20, .pages = one_page}};
  const Batch batch{.tokens = tokens, .sequences = sequences};
  EXPECT_DEATH(engine.model().forward(exec.exec, batch, kv, {}, {}, {}), "20 tokens in 1 pages");
}

TEST(Forward, LayerDoneComesOnceALayerInOrderAndAfterItsKeysAndValues) {
  const ModelConfig config = test_configs()[0].config;
  const Weights weights = random_weights(config, 9);
  const Engine engine(config, weights, 16);
  TestExec exec(engine.scratch_bytes());
  const KvStore kv(engine.model().kv_layout(16), 2);
  for (const int32_t page : {0, 1}) kv.poison(PageId{page});
  const std::vector<int32_t> tokens = random_tokens(config, 20, 1);
  const std::vector<PageId> pages{PageId{1}, PageId{0}};
  const std::vector<SequenceRows> sequences{{.row_count = 20, .pages = pages}};
  std::vector<int32_t> seen;
  engine.model().forward(
      exec.exec, {.tokens = tokens, .sequences = sequences}, kv, {}, {}, [&](int32_t l) {
        seen.push_back(l);
        for (const KvKind kind : {KvKind::kKey, KvKind::kValue}) {
          const auto* first = kv.slab(l, kind).row<bf16>(1);
          EXPECT_TRUE(std::isfinite(static_cast<float>(first[0])));
          const int64_t row_16 = 3 * int64_t{config.head_dim};
          const auto* second = kv.slab(l, kind).row<bf16>(0);
          EXPECT_TRUE(std::isfinite(static_cast<float>(second[row_16])));
          EXPECT_FALSE(std::isfinite(static_cast<float>(second[row_16 + config.head_dim])));
        }
      });
  std::vector<int32_t> expected(static_cast<size_t>(config.layers));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST(KvStore, PagesLieSideBySideAndPoisonIsNan) {
  const KvLayout layout{.layers = 2, .kv_heads = 3, .head_dim = 16, .page_tokens = 8};
  const KvStore store(layout, 5);
  EXPECT_EQ(layout.page_bytes(), size_t{3} * 8 * 16 * 2);
  const Tensor slab = store.slab(1, KvKind::kValue);
  EXPECT_EQ(store.page(1, KvKind::kValue, PageId{4}),
            static_cast<std::byte*>(slab.data) + 4 * layout.page_bytes());
  store.poison(PageId{4});
  EXPECT_TRUE(std::isnan(static_cast<float>(slab.row<bf16>(4)[0])));
  EXPECT_EQ(static_cast<float>(slab.row<bf16>(3)[3 * 8 * 16 - 1]), 0.0F);
}

}  // namespace
}  // namespace tandem::model
