// SPDX-License-Identifier: Apache-2.0
// The differential test: the same requests give the same tokens and bitwise the same logprobs,
// split or whole, alone or in a busy batch, whatever the chunks, the pages, the cache and the
// threads.
#include <gtest/gtest.h>

#include <set>

#include "engine/differential_harness_test.h"

namespace tandem::engine {
namespace {

std::vector<Variant> variants() {
  return {
      {.name = "WholeBusy", .split = false},
      {.name = "WholeBusyWithoutCache", .split = false, .prefix_cache = false},
      {.name = "SplitAlone", .alone = true},
      {.name = "SplitBusy"},
      {.name = "SplitBusyWithoutCache", .prefix_cache = false},
      {.name = "SplitSmallChunks", .page_tokens = 8, .chunk_rows_max = 8, .rows_max = 33},
      {.name = "SplitLargePages", .page_tokens = 64, .chunk_rows_max = 320, .rows_max = 400},
      {.name = "SplitOneLogitRow", .logit_rows_max = 1},
      {.name = "SplitThreads", .threads = true},
      {.name = "SplitThreadsSmallChunks", .threads = true, .chunk_rows_max = 16, .rows_max = 48},
      {.name = "SplitCancels", .cancels = true},
      {.name = "SplitThreadsCancels", .threads = true, .cancels = true},
      {.name = "WholeCancels", .split = false, .cancels = true},
  };
}

const Variant kTruth{.name = "WholeAlone", .split = false, .alone = true, .prefix_cache = false};

void compare_all(const model::Model& model, const std::vector<Submit>& requests) {
  const auto truth = serve_all(model, requests, kTruth);
  std::set<std::vector<int32_t>> different;
  size_t tokens = 0;
  for (const auto& [id, answer] : truth) {
    EXPECT_NE(answer.finish, FinishReason::kError);
    different.insert(answer.ids());
    tokens += answer.tokens.size();
  }
  EXPECT_GT(different.size(), truth.size() / 2);  // equality would say little of equal answers
  EXPECT_GT(tokens, 150U);
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const auto seen = serve_all(model, requests, variant);
    expect_same(truth, seen);
    if (variant.cancels) continue;
    // The variants do what their names say.
    int cached = 0;
    for (const auto& [id, answer] : seen) cached += answer.cached_tokens > 0;
    EXPECT_EQ(cached > 0, variant.prefix_cache);
  }
}

TEST(Differential, TinyModelGivesTheSameBitsEverywhere) {
  const TestModel tiny = tiny_model();
  compare_all(*tiny.model, differential_requests(tiny.config, 300, 20, 1));
}

// It can fail: another seed, another request, another weight show.
TEST(Differential, ADifferenceShows) {
  const TestModel tiny = tiny_model();
  auto requests = differential_requests(tiny.config, 60, 8, 1);
  const auto truth = serve_all(*tiny.model, requests, kTruth);
  ++requests[2].sampling.seed;
  const auto other = serve_all(*tiny.model, requests, kTruth);
  EXPECT_NE(truth.at(requests[2].id).ids(), other.at(requests[2].id).ids());
  EXPECT_EQ(truth.at(requests[1].id).ids(), other.at(requests[1].id).ids());
}

}  // namespace
}  // namespace tandem::engine
