// SPDX-License-Identifier: Apache-2.0
// Compute: all that a worker needs of a model, as a few functions, so that the real one
// (model_compute) and a fake one (fake_compute, for tests and the simulator) both fit. One per
// worker: its buffers belong to the worker's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/result.h"
#include "core/sampling.h"
#include "core/tensor.h"
#include "model/forward.h"
#include "model/kv_store.h"
#include "model/sampler.h"

namespace tandem::engine {

struct Compute {
  model::KvLayout kv_layout;
  int32_t vocab = 0;          // columns of the logits
  int32_t vocab_sampled = 0;  // ids at and above it are never drawn

  // As model::Model::forward: logits f32 [batch.logit_rows.size(), vocab].
  std::function<void(const model::Batch& batch, const model::KvStore& kv, Tensor logits,
                     const model::Model::LayerDone& layer_done)>
      forward;
  // As model::sample and model::score; kInternal for a row that has a NaN.
  std::function<Result<SampledToken>(const model::SampleInput& input, const SamplingParams& params)>
      sample;
  std::function<Result<SampledToken>(std::span<const float> logits, int32_t token, int32_t k)>
      score;
};

}  // namespace tandem::engine
