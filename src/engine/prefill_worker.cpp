// SPDX-License-Identifier: Apache-2.0
#include "engine/prefill_worker.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "core/log.h"

namespace tandem::engine {

Result<std::unique_ptr<PrefillWorker>> PrefillWorker::create(const PrefillSettings& settings,
                                                             Compute compute, Peers peers) {
  auto core = TRY(WorkerCore::create(settings.worker, sched::Role::kPrefill, std::move(compute)));
  KvExport source = TRY(export_kv(core->kv, peers.transport));
  return std::unique_ptr<PrefillWorker>(
      new PrefillWorker(settings, std::move(core), std::move(source), peers));
}

PrefillWorker::PrefillWorker(const PrefillSettings& settings, std::unique_ptr<WorkerCore> core,
                             KvExport source, Peers peers)
    : settings_(settings), core_(std::move(core)), peers_(peers), source_(std::move(source)) {}

Result<void> PrefillWorker::pair(KvExport decoder) {
  const model::KvLayout& mine = core_->kv.layout();
  const model::KvLayout& theirs = decoder.layout;
  const auto refuse = [](std::string_view what, int64_t a, int64_t b) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("prefiller and decoder differ in {}: {} and {}", what, a, b),
                 std::string(what)};
  };
  if (mine.layers != theirs.layers) return refuse("layers", mine.layers, theirs.layers);
  if (mine.kv_heads != theirs.kv_heads) return refuse("kv_heads", mine.kv_heads, theirs.kv_heads);
  if (mine.head_dim != theirs.head_dim) return refuse("head_dim", mine.head_dim, theirs.head_dim);
  if (mine.page_tokens != theirs.page_tokens) {
    return refuse("page_tokens", mine.page_tokens, theirs.page_tokens);
  }
  if (mine.dtype != theirs.dtype) {
    return refuse("dtype", static_cast<int64_t>(mine.dtype), static_cast<int64_t>(theirs.dtype));
  }
  if (decoder.slabs.size() != source_.slabs.size()) {
    return refuse("slabs", static_cast<int64_t>(source_.slabs.size()),
                  static_cast<int64_t>(decoder.slabs.size()));
  }
  destination_ = std::move(decoder);
  return {};
}

bool PrefillWorker::step(TimePoint now) {
  CHECK(!destination_.slabs.empty(), "no decoder is paired");
  take_messages();
  start_orders();
  run_plan(now);
  const bool moved = move_bytes(now);
  close_ended();
  flush_ends();
  return moved || core_->scheduler.stats().rows_last > 0 || !ends_.empty();
}

void PrefillWorker::take_messages() {
  messages_.clear();
  peers_.queues.to_prefill.take(messages_);
  for (PrefillMessage& message : messages_) {
    if (auto* order = std::get_if<PrefillOrder>(&message)) {
      orders_.push_back(std::move(*order));
    } else {
      cancel(std::get<PrefillCancel>(message));
    }
  }
}

void PrefillWorker::start_orders() {
  while (!orders_.empty()) {
    PrefillOrder& order = orders_.front();
    const Submit& submit = *order.submit;
    const RequestId id = submit.id;
    auto added = core_->scheduler.add(core_->spec_of(submit));
    if (!added.ok() && added.error().code == ErrorCode::kResourceExhausted) return;  // next step
    if (!added.ok()) {
      peers_.coordinator.end(id, FinishReason::kError, std::move(added).error());
      if (order.target) end_message(id, order.target->key, HandoffOutcome::kFinished);
      orders_.pop_front();
      continue;
    }
    Prompt& prompt = prompts_[id];
    prompt.submit = std::move(order.submit);
    if (order.target) {
      prompt.key = order.target->key;
      prompt.target = std::move(order.target);
    }
    orders_.pop_front();
  }
}

// A cancel of an older epoch than the one at work, or of what has ended, does nothing.
void PrefillWorker::cancel(const PrefillCancel& order) {
  const auto it = prompts_.find(order.id);
  if (it != prompts_.end() && it->second.key.value_or(transfer::HandoffKey{}) == order.key) {
    core_->scheduler.cancel(order.id);
    drop(it->second, HandoffOutcome::kCancelled);
    return;
  }
  std::erase_if(orders_, [&](const PrefillOrder& waiting) {
    const auto key = waiting.target ? waiting.target->key : transfer::HandoffKey{};
    if (waiting.submit->id != order.id || key != order.key) return false;
    if (waiting.target) end_message(order.id, key, HandoffOutcome::kCancelled);
    return true;
  });
}

// The scheduler knows the prompt no more; its transfers stop as soon as they can.
void PrefillWorker::drop(Prompt& prompt, HandoffOutcome outcome) {
  if (prompt.outcome) return;
  prompt.outcome = outcome;
  if (prompt.key) peers_.transport.cancel(*prompt.key);
}

void PrefillWorker::run_plan(TimePoint now) {
  const sched::Plan& plan = core_->scheduler.step(now);
  for (const sched::Ended& ended : plan.ended) {
    peers_.coordinator.end(ended.id, FinishReason::kError, deadline_error());
    drop(prompts_.at(ended.id), HandoffOutcome::kFinished);
  }
  if (plan.rows.empty()) return;
  begin_rows(plan);
  const std::span<RowResult> results = core_->runner.run(
      plan, core_->scheduler,
      [this](RequestId id) -> const Submit& { return *prompts_.at(id).submit; },
      [this, now](int32_t layer, std::span<const Piece> pieces) { on_layer(layer, pieces, now); });
  for (size_t i = 0; i < results.size(); ++i) apply(plan.rows[i], results[i]);
}

void PrefillWorker::begin_rows(const sched::Plan& plan) {
  const TimePoint start = peers_.clock.now();
  for (const sched::PlanRow& row : plan.rows) {
    Prompt& prompt = prompts_.at(row.id);
    if (prompt.progress.started) continue;
    prompt.progress.started = true;
    prompt.progress.first_chunk_start = start;
    prompt.progress.cached_tokens = core_->scheduler.cached_tokens(row.id);
    peers_.coordinator.advance(row.id, RequestState::kPrefill);
    if (!prompt.target) continue;
    core_->scheduler.transfer_opened(row.id);
    sending_[*prompt.key] = row.id;
    prompt.outgoing =
        std::make_unique<Outgoing>(std::move(*prompt.target), core_->kv.layout(),
                                   std::vector<PageId>(row.pages.begin(), row.pages.end()),
                                   static_cast<int32_t>(prompt.submit->prompt.size()));
    prompt.target.reset();
  }
}

void PrefillWorker::on_layer(int32_t layer, std::span<const Piece> pieces, TimePoint now) {
  for (const Piece& piece : pieces) {
    Prompt& prompt = prompts_.at(piece.row->id);
    if (!prompt.outgoing) continue;
    prompt.outgoing->layer_ready(layer, piece.row->position_begin + piece.begin + piece.count);
    push(prompt, now);
  }
  peers_.transport.step(now);  // bytes of this layer move while the next one is computed
}

void PrefillWorker::push(Prompt& prompt, TimePoint now) {
  if (prompt.outcome || !prompt.outgoing) return;
  const Outgoing::Route route{.kv = core_->kv,
                              .source = source_,
                              .destination = destination_,
                              .transport = peers_.transport};
  const auto pushed = prompt.outgoing->push(route, now + settings_.transfer_wait_max);
  if (pushed.ok()) return;
  log::error("handoff {}: {}", prompt.key->handoff.value, pushed.error().text);
  drop(prompt, HandoffOutcome::kFailed);
}

void PrefillWorker::apply(const sched::PlanRow& row, RowResult& result) {
  Prompt& prompt = prompts_.at(row.id);
  if (prompt.outcome) {  // its push failed during the forward pass
    core_->scheduler.cancel(row.id);
    return;
  }
  if (result.error) {  // NaN: nothing of it is cached, nobody else is touched
    log::error("request {}: {}", row.id.value, result.error->text);
    peers_.coordinator.end(row.id, FinishReason::kError, std::move(result.error));
    core_->scheduler.cancel(row.id);
    drop(prompt, HandoffOutcome::kFinished);
    return;
  }
  auto& logprobs = prompt.progress.logprobs;
  logprobs.insert(logprobs.end(), std::make_move_iterator(result.prompt_logprobs.begin()),
                  std::make_move_iterator(result.prompt_logprobs.end()));
  const bool last =
      row.position_begin + row.row_count == static_cast<int32_t>(prompt.submit->prompt.size());
  const RequestId id = row.id;
  if (last) draw_first(row, prompt, result);
  core_->scheduler.chunk_done(id);
  if (!last) return;
  // Without a target, or ended at its first token, its pages aren't wanted any more.
  if (prompt.outcome || !prompt.key) core_->scheduler.finish(id);
}

void PrefillWorker::draw_first(const sched::PlanRow& row, Prompt& prompt, RowResult& result) {
  const TimePoint end = peers_.clock.now();
  prompt.progress.last_chunk_end = end;
  prompt.computed = true;
  if (result.token) prompt.first_token = result.token->token;
  const auto finish = peers_.coordinator.first_token(
      prompt.progress.first_token(*prompt.submit, std::move(result.token), peers_.clock.now()));
  if (finish == FinishReason::kNone) {
    peers_.coordinator.advance(row.id, RequestState::kHandoff);
  } else {
    drop(prompt, HandoffOutcome::kFinished);
  }
}

bool PrefillWorker::move_bytes(TimePoint now) {
  for (auto& [key, id] : sending_) push(prompts_.at(id), now);
  peers_.transport.step(now);
  completions_.clear();
  peers_.transport.take_completions(completions_);
  for (const transfer::Completion& done : completions_) {
    Prompt& prompt = prompts_.at(sending_.at(done.owner));
    prompt.outgoing->completed(done.outcome);
    if (prompt.outgoing->failed() && !prompt.outcome) {
      core_->scheduler.cancel(prompt.submit->id);
      drop(prompt, HandoffOutcome::kFailed);
    }
  }
  return !sending_.empty();
}

void PrefillWorker::close_ended() {
  for (auto it = prompts_.begin(); it != prompts_.end();) {
    it = close(it->first, it->second) ? prompts_.erase(it) : std::next(it);
  }
}

bool PrefillWorker::close(RequestId id, Prompt& prompt) {
  if (!prompt.key) return prompt.outcome || prompt.computed;
  if (!prompt.outgoing) {  // dropped before its first chunk
    if (prompt.outcome) end_message(id, *prompt.key, *prompt.outcome);
    return prompt.outcome.has_value();
  }
  const Outgoing& outgoing = *prompt.outgoing;
  const bool complete = prompt.computed && outgoing.all_pushed();
  if (!outgoing.terminal() || !(prompt.outcome || complete)) return false;
  core_->scheduler.transfer_closed(id);
  if (prompt.outcome) {
    end_message(id, *prompt.key, *prompt.outcome);
  } else {
    core_->scheduler.finish(id);
    bytes_pushed_ += static_cast<int64_t>(outgoing.parts()) *
                     static_cast<int64_t>(core_->kv.layout().page_bytes());
    ends_.push_back({.id = id,
                     .key = *prompt.key,
                     .outcome = HandoffOutcome::kComplete,
                     .first_token = prompt.first_token,
                     .prompt_tokens = static_cast<int32_t>(prompt.submit->prompt.size()),
                     .parts = outgoing.parts(),
                     .layer_digests = outgoing.layer_digests(),
                     .last_chunk_end = prompt.progress.last_chunk_end});
  }
  sending_.erase(*prompt.key);
  return true;
}

void PrefillWorker::end_message(RequestId id, transfer::HandoffKey key, HandoffOutcome outcome) {
  ends_.push_back({.id = id, .key = key, .outcome = outcome});
}

void PrefillWorker::flush_ends() {
  while (!ends_.empty() && peers_.queues.to_decode.try_push(ends_.front())) ends_.pop_front();
}

void PrefillWorker::check_invariants() const {
  core_->pool.check_invariants();
  core_->cache.check_invariants();
  core_->scheduler.check_invariants();
  for (const auto& [key, id] : sending_) {
    CHECK(prompts_.at(id).outgoing != nullptr && prompts_.at(id).key == key);
  }
}

}  // namespace tandem::engine
