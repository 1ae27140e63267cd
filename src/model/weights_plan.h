// SPDX-License-Identifier: Apache-2.0
// Which tensors a config asks for, and where each goes in memory. load_weights and random_weights
// fill the same plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/weights.h"

namespace tandem::model {

// One stored tensor and its place. Shapes have one or two dimensions.
struct WeightSlot {
  std::string name;
  std::vector<int64_t> shape;  // [out,in] or [n]
  void* data = nullptr;        // bf16, dense, 64-byte aligned but for an expert's part
  [[nodiscard]] int64_t count() const;
};

struct WeightPlan {
  Weights weights;                // storage allocated and zero, views set
  std::vector<WeightSlot> slots;  // every tensor that must be filled, in the order of the layers
};

struct PlanOptions {
  std::string_view prefix = "model.";  // of the text model's names
  bool with_mtp = false;
  // False: names and shapes only, every data pointer null. A checkpoint is held against these
  // before memory of the config's size is asked for.
  bool allocate = true;
};

WeightPlan plan_weights(const ModelConfig& config, const PlanOptions& options);

}  // namespace tandem::model
