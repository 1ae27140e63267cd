// SPDX-License-Identifier: Apache-2.0
// The real model as a Compute. app/ and the differential test call it, once for each worker.
#pragma once

#include "core/exec.h"
#include "engine/compute.h"
#include "model/forward.h"

namespace tandem::engine {

struct ModelComputeArgs {
  int32_t page_tokens = 64;
  int32_t vocab_sampled = 0;  // 0: all of the model's vocabulary
};

// `model` must outlive the result. `exec` is copied: its scratch must hold scratch_bytes() of the
// worker's limits and must not be shared with another thread.
[[nodiscard]] Compute make_model_compute(const model::Model& model, const Exec& exec,
                                         const ModelComputeArgs& args);

}  // namespace tandem::engine
