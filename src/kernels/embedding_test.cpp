// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "kernels/test_support.h"

namespace tandem::kernels {
namespace {

TEST(Embedding, CopiesTheRowsOfTheTokens) {
  Rng rng(1);
  TestTensor table(DType::kBf16, {50, 24});
  table.fill_normal(rng);
  for (const int64_t rows : {0, 1, 127, 128, 129}) {
    TestTensor tokens(DType::kI32, {rows}), y(DType::kBf16, {rows, 24});
    for (int64_t t = 0; t < rows; ++t) {
      tokens.view().as<int32_t>()[t] = static_cast<int32_t>(rng.below(50));
    }
    TestTeam team(2);
    embedding(TestExec(0, &team).exec, {.tokens = tokens, .table = table, .y = y});
    for (int64_t i = 0; i < rows * 24; ++i) {
      EXPECT_EQ(y.at(i), table.at(static_cast<int64_t>(tokens.at(i / 24)) * 24 + i % 24));
    }
    EXPECT_TRUE(y.sentinels_intact());
  }
}

TEST(EmbeddingDeathTest, TokensOutsideTheVocabularyAreRefused) {
  const TestTensor table(DType::kBf16, {4, 8}), tokens(DType::kI32, {1}), y(DType::kBf16, {1, 8});
  for (const int32_t token : {-1, 4}) {
    tokens.view().as<int32_t>()[0] = token;
    EXPECT_DEATH(embedding(TestExec(0).exec, {.tokens = tokens, .table = table, .y = y}),
                 "of row 0, V 4");
  }
}

}  // namespace
}  // namespace tandem::kernels
