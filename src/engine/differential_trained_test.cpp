// SPDX-License-Identifier: Apache-2.0
// The differential test over the model that ships with the project: slower, so under its own label.
#include <gtest/gtest.h>

#include "engine/differential_harness_test.h"
#include "model/safetensors.h"

namespace tandem::engine {
namespace {

TEST(DifferentialTrained, SplitEqualsWhole) {
  const std::filesystem::path folder = std::string(TANDEM_SOURCE_DIR) + "/models/tandem-small";
  const auto config = model::load_config(folder);
  ASSERT_TRUE(config.ok()) << config.error().text;
  const auto checkpoint = model::Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text;
  const auto weights = model::load_weights(config.value(), checkpoint.value(), {});
  ASSERT_TRUE(weights.ok()) << weights.error().text;
  const Exec exec;
  const model::Model model = model::Model::create(config.value(), weights.value(), exec);
  const auto requests = differential_requests(config.value(), 700, 32, 2);
  const auto truth =
      serve_all(model, requests, {.split = false, .alone = true, .prefix_cache = false});
  for (const Variant& variant :
       {Variant{.name = "SplitBusy"}, Variant{.name = "SplitThreads", .threads = true},
        Variant{
            .name = "SplitLargePages", .page_tokens = 64, .chunk_rows_max = 512, .rows_max = 600},
        Variant{.name = "SplitCancels", .cancels = true}}) {
    SCOPED_TRACE(variant.name);
    expect_same(truth, serve_all(model, requests, variant));
  }
}

}  // namespace
}  // namespace tandem::engine
