// SPDX-License-Identifier: Apache-2.0
#include "engine/batch_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::engine {
namespace {

// NaN and infinity have all exponent bits set; the sum of such marks is cheap and vectorises.
bool all_finite(std::span<const float> row) {
  bool finite = true;
  for (const float x : row) finite &= std::isfinite(x);
  return finite;
}

// A prompt chunk always computes its last row's logits: a NaN anywhere in the chunk's KV reaches
// that row through attention, so nothing is cached before it has been seen to be sound.
int32_t wanted_from(const sched::PlanRow& row) {
  return std::min(row.logit_begin, row.row_count - 1);
}

}  // namespace

BatchRunner::BatchRunner(const Compute& compute, const model::KvStore& kv,
                         const BatchLimits& limits)
    : compute_(compute),
      kv_(kv),
      limits_(limits),
      logits_(static_cast<size_t>(limits.logit_rows_max) * static_cast<size_t>(compute.vocab) *
              sizeof(float)) {
  CHECK(limits.logit_rows_max >= 1 && limits.rows_max >= 1);
  const auto rows = static_cast<size_t>(limits.rows_max);
  const auto sequences = static_cast<size_t>(std::min(limits.sequences_max, limits.rows_max));
  tokens_.reserve(rows);
  pieces_.reserve(sequences);
  sequences_.reserve(sequences);
  results_.reserve(sequences);
  logit_rows_.reserve(static_cast<size_t>(limits.logit_rows_max));
}

std::span<RowResult> BatchRunner::run(const sched::Plan& plan, const sched::Scheduler& scheduler,
                                      const Lookup& lookup, const LayerDone& layer_done) {
  CHECK(plan.row_count <= limits_.rows_max, "{} rows", plan.row_count);
  results_.clear();
  results_.resize(plan.rows.size());
  row_idx_ = 0;
  row_begin_ = 0;
  while (fill_pass(plan)) {
    forward(layer_done);
    for (const Piece& piece : pieces_) {
      RowResult& result = results_[piece.row_idx];
      if (!result.error) take_logits(piece, scheduler, lookup(piece.row->id), result);
    }
  }
  return results_;
}

bool BatchRunner::fill_pass(const sched::Plan& plan) {
  pieces_.clear();
  int32_t room = limits_.logit_rows_max;
  int32_t logit_idx = 0;
  while (row_idx_ < plan.rows.size() && room > 0) {
    const sched::PlanRow& row = plan.rows[row_idx_];
    Piece piece{.row = &row, .row_idx = row_idx_, .begin = row_begin_, .logit_idx = logit_idx};
    piece.logit_begin = std::max(wanted_from(row), row_begin_);
    const int32_t end = std::min(row.row_count, piece.logit_begin + room);
    piece.count = end - row_begin_;
    pieces_.push_back(piece);
    logit_idx += end - piece.logit_begin;
    room -= end - piece.logit_begin;
    row_begin_ = end;
    if (end == row.row_count) {
      ++row_idx_;
      row_begin_ = 0;
    }
  }
  return !pieces_.empty();
}

void BatchRunner::forward(const LayerDone& layer_done) {
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  for (const Piece& piece : pieces_) {
    const auto row_begin = static_cast<int32_t>(tokens_.size());
    const auto tokens = piece.row->tokens.subspan(static_cast<size_t>(piece.begin),
                                                  static_cast<size_t>(piece.count));
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    sequences_.push_back({.row_begin = row_begin,
                          .row_count = piece.count,
                          .position_begin = piece.row->position_begin + piece.begin,
                          .pages = piece.row->pages});
    for (int32_t r = piece.logit_begin; r < piece.begin + piece.count; ++r) {
      logit_rows_.push_back(row_begin + r - piece.begin);
    }
  }
  const model::Batch batch{.tokens = tokens_, .sequences = sequences_, .logit_rows = logit_rows_};
  const Tensor logits = Tensor::dense(logits_.data(), DType::kF32,
                                      {static_cast<int64_t>(logit_rows_.size()), compute_.vocab});
  compute_.forward(batch, kv_, logits, [&](int32_t layer) {
    if (layer_done) layer_done(layer, pieces_);
  });
}

void BatchRunner::take_logits(const Piece& piece, const sched::Scheduler& scheduler,
                              const Submit& submit, RowResult& result) {
  const sched::PlanRow& row = *piece.row;
  const auto vocab = static_cast<size_t>(compute_.vocab);
  const auto prompt_tokens = static_cast<int32_t>(submit.prompt.size());
  for (int32_t r = piece.logit_begin; r < piece.begin + piece.count; ++r) {
    const auto idx = static_cast<size_t>(piece.logit_idx + r - piece.logit_begin);
    const std::span<const float> logits = logits_.span_of<float>().subspan(idx * vocab, vocab);
    const int32_t position = row.position_begin + r + 1;  // of the token that the row predicts
    Result<SampledToken> token = SampledToken{};
    if (r == row.row_count - 1 && row.samples) {
      const std::span<const int32_t> tokens =
          scheduler.tokens(row.id).first(static_cast<size_t>(position));
      token = compute_.sample({.logits = logits,
                               .vocab_sampled = compute_.vocab_sampled,
                               .position = position,
                               .prompt = tokens.first(submit.prompt.size()),
                               .output = tokens.subspan(submit.prompt.size()),
                               .stop_ids = submit.stop_ids},
                              submit.sampling);
      if (token.ok()) result.token = std::move(token.value());
    } else if (submit.prompt_logprobs >= 0 && position < prompt_tokens) {
      token = compute_.score(logits, submit.prompt[static_cast<size_t>(position)],
                             submit.prompt_logprobs);
      if (token.ok()) result.prompt_logprobs.push_back(std::move(token.value()));
    } else if (!all_finite(logits)) {
      token = Error{ErrorCode::kInternal, "the model's output is not finite", ""};
    }
    if (!token.ok()) {
      result.error = std::move(token).error();
      return;
    }
  }
}

}  // namespace tandem::engine
