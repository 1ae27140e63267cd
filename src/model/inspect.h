// SPDX-License-Identifier: Apache-2.0
// What a checkpoint is and where it fits: the data behind `tandem inspect`, which app/ prints.
// Computed from headers alone: no weight is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/safetensors.h"

namespace tandem::model {

// A place that could hold the model: a machine's memory or one accelerator's.
struct MemoryPlace {
  std::string name;  // "this machine", "80 GB GPU"
  uint64_t bytes = 0;
};

struct FitOptions {
  std::vector<MemoryPlace> places;
  // Share of a place that weights and KV may take; the rest is activations, code and fragments.
  double usable_share = 0.9;
  int32_t page_tokens = 64;
};

// The accelerator sizes that published Qwen models are served on.
[[nodiscard]] std::vector<MemoryPlace> common_gpus();

struct Fit {
  MemoryPlace place;
  bool weights_fit = false;
  int64_t kv_tokens = 0;      // whole pages, in what the weights leave; 0 where they don't fit
  int64_t full_contexts = 0;  // sequences of max_position tokens among them
};

struct ModelReport {
  ModelConfig config;
  std::vector<Checkpoint::Shard> shards;
  int64_t tensor_count = 0;
  uint64_t file_bytes = 0;
  uint64_t stored_weight_bytes = 0;  // of all tensors, as stored
  int64_t parameters = 0;            // by the config, without MTP
  int64_t active_parameters = 0;     // that one token reads: K of the E experts
  int64_t mtp_parameters = 0;        // stored under mtp.*; 0 where absent
  uint64_t weight_bytes = 0;         // in memory, bf16, with MTP
  int64_t kv_bytes_per_token = 0;    // bf16, all layers, with the MTP layer where there is one
  std::vector<Fit> fits;             // one per place, in their order
};

[[nodiscard]] ModelReport inspect(const ModelConfig& config, const Checkpoint& checkpoint,
                                  const FitOptions& options);

// The report as lines for a terminal, at most 100 columns wide.
[[nodiscard]] std::string to_text(const ModelReport& report);

}  // namespace tandem::model
