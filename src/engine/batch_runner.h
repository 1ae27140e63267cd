// SPDX-License-Identifier: Apache-2.0
// The token path of every worker: a plan's rows -> forward -> a drawn token (or an honest error)
// per row that wants one. A row's result depends on its own sequence alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/tensor.h"
#include "engine/api.h"
#include "engine/compute.h"
#include "sched/scheduler.h"

namespace tandem::engine {

// Rows [begin, begin + count) of one plan row that go through one forward pass together.
struct Piece {
  const sched::PlanRow* row = nullptr;
  size_t row_idx = 0;  // of plan.rows
  int32_t begin = 0;
  int32_t count = 0;
  int32_t logit_begin = 0;  // first row of the plan row whose logits this pass computes
  int32_t logit_idx = 0;    // where they start in the pass's logits
};

struct RowResult {
  std::optional<SampledToken> token;          // where the row samples
  std::vector<SampledToken> prompt_logprobs;  // where they were asked for; of the chunk's rows
  std::optional<Error> error;                 // NaN: this request only
};

struct BatchLimits {
  int32_t rows_max = 0;
  int32_t sequences_max = 0;
  int32_t logit_rows_max = 256;  // of one forward pass; more are computed in further passes
};

class BatchRunner {
 public:
  BatchRunner(const Compute& compute, const model::KvStore& kv, const BatchLimits& limits);

  // After layer `layer` of the pieces' rows stands in the cache; pieces in plan order.
  using LayerDone = std::function<void(int32_t layer, std::span<const Piece> pieces)>;
  using Lookup = std::function<const Submit&(RequestId)>;

  // Result i is of plan.rows[i]; valid until the next run. The scheduler is only asked for tokens.
  std::span<RowResult> run(const sched::Plan& plan, const sched::Scheduler& scheduler,
                           const Lookup& lookup, const LayerDone& layer_done);

 private:
  // Fills pieces_ from (row_idx_, row_begin_) on until the pass is full. False: nothing is left.
  bool fill_pass(const sched::Plan& plan);
  void forward(const LayerDone& layer_done);
  void take_logits(const Piece& piece, const sched::Scheduler& scheduler, const Submit& submit,
                   RowResult& result);

  const Compute& compute_;
  const model::KvStore& kv_;
  BatchLimits limits_;
  Buffer logits_;  // f32 [logit_rows_max, vocab]
  size_t row_idx_ = 0;
  int32_t row_begin_ = 0;
  std::vector<Piece> pieces_;
  std::vector<int32_t> tokens_;
  std::vector<model::SequenceRows> sequences_;
  std::vector<int32_t> logit_rows_;
  std::vector<RowResult> results_;
};

}  // namespace tandem::engine
