// SPDX-License-Identifier: Apache-2.0
#include "engine/model_compute.h"

#include <memory>

namespace tandem::engine {

Compute make_model_compute(const model::Model& model, const Exec& exec,
                           const ModelComputeArgs& args) {
  Compute compute;
  compute.kv_layout = model.kv_layout(args.page_tokens);
  compute.vocab = model.config().vocab;
  compute.vocab_sampled = args.vocab_sampled > 0 ? args.vocab_sampled : compute.vocab;
  CHECK(compute.vocab_sampled <= compute.vocab, "{} of {}", compute.vocab_sampled, compute.vocab);
  compute.forward = [&model, exec](const model::Batch& batch, const model::KvStore& kv,
                                   Tensor logits, const model::Model::LayerDone& layer_done) {
    model.forward(exec, batch, kv, logits, Tensor{}, layer_done);
  };
  // std::function wants to be copyable, so the two share the scratch.
  const std::shared_ptr<model::SamplerScratch> scratch = model::make_sampler_scratch(compute.vocab);
  compute.sample = [scratch](const model::SampleInput& input, const SamplingParams& params) {
    return model::sample(input, params, *scratch);
  };
  compute.score = [scratch, vocab_sampled = compute.vocab_sampled](std::span<const float> logits,
                                                                   int32_t token, int32_t k) {
    return model::score(logits, vocab_sampled, token, k, *scratch);
  };
  return compute;
}

}  // namespace tandem::engine
