// SPDX-License-Identifier: Apache-2.0
#include "engine/whole_engine.h"

#include <iterator>
#include <utility>

#include "core/log.h"

namespace tandem::engine {

Result<std::unique_ptr<WholeEngine>> WholeEngine::create(const WholeSettings& settings,
                                                         Parts parts) {
  const EngineLimits& limits = settings.limits;
  if (limits.queue_requests_max < 1) {
    return Error{ErrorCode::kInvalidArgument, "must be at least 1", "queue_requests_max"};
  }
  auto core =
      TRY(WorkerCore::create(settings.worker, sched::Role::kWhole, std::move(parts.compute)));
  EngineInfo info{.model_name = limits.model_name,
                  .vocab_size = core->compute.vocab,
                  .tokenizer_vocab_size = limits.tokenizer_vocab_size,
                  .context_tokens_max = settings.worker.sched.context_tokens_max,
                  .kv_tokens_max = core->kv_tokens_max(),
                  .queue_requests_max = limits.queue_requests_max};
  return std::unique_ptr<WholeEngine>(
      new WholeEngine(settings, std::move(info), std::move(core), parts.link, parts.clock));
}

WholeEngine::WholeEngine(const WholeSettings& settings, EngineInfo info,
                         std::unique_ptr<WorkerCore> core, Link& link, const Clock& clock)
    : publish_every_(settings.limits.publish_every),
      link_(link),
      clock_(clock),
      coordinator_(std::move(info), link),
      core_(std::move(core)) {}

bool WholeEngine::step(TimePoint now) {
  take_work();
  const bool news = !submits_.empty() || !cancels_.empty();
  run_plan(now);
  ++steps_;
  if (!ever_published_ || now - published_ >= publish_every_) publish(now);
  return news || core_->scheduler.stats().rows_last > 0;
}

void WholeEngine::take_work() {
  submits_.clear();
  cancels_.clear();
  coordinator_.take_work(submits_, cancels_);
  for (SubmitPtr& submit : submits_) {
    const RequestId id = submit->id;
    auto added = core_->scheduler.add(core_->spec_of(*submit));
    if (!added.ok()) {
      coordinator_.end(id, FinishReason::kError, std::move(added).error());
      continue;
    }
    requests_[id].submit = std::move(submit);
  }
  for (const RequestId id : cancels_) {
    core_->scheduler.cancel(id);
    requests_.erase(id);
    coordinator_.end(id, FinishReason::kCancelled);
  }
}

void WholeEngine::run_plan(TimePoint now) {
  const sched::Plan& plan = core_->scheduler.step(now);
  for (const sched::Ended& ended : plan.ended) {
    requests_.erase(ended.id);
    coordinator_.end(ended.id, FinishReason::kError, deadline_error());
  }
  if (plan.rows.empty()) return;
  begin_rows(plan);
  const std::span<RowResult> results = core_->runner.run(
      plan, core_->scheduler,
      [this](RequestId id) -> const Submit& { return *requests_.at(id).submit; }, {});
  for (size_t i = 0; i < results.size(); ++i) {
    const auto it = requests_.find(plan.rows[i].id);
    if (apply(plan.rows[i], it->second, results[i])) requests_.erase(it);
  }
  coordinator_.emit(events_);
}

void WholeEngine::begin_rows(const sched::Plan& plan) {
  const TimePoint start = clock_.now();
  for (const sched::PlanRow& row : plan.rows) {
    PromptProgress& progress = requests_.at(row.id).progress;
    if (progress.started) continue;
    progress.started = true;
    progress.first_chunk_start = start;
    progress.cached_tokens = core_->scheduler.cached_tokens(row.id);
    coordinator_.advance(row.id, RequestState::kPrefill);
  }
}

bool WholeEngine::apply(const sched::PlanRow& row, Request& request, RowResult& result) {
  const RequestId id = row.id;
  if (result.error) {  // NaN: nothing of it is cached, nobody else is touched
    log::error("request {}: {}", id.value, result.error->text);
    core_->scheduler.cancel(id);
    coordinator_.end(id, FinishReason::kError, std::move(result.error));
    return true;
  }
  auto& logprobs = request.progress.logprobs;
  logprobs.insert(logprobs.end(), std::make_move_iterator(result.prompt_logprobs.begin()),
                  std::make_move_iterator(result.prompt_logprobs.end()));
  const auto prompt_tokens = static_cast<int32_t>(request.submit->prompt.size());
  const int32_t computed = row.position_begin + row.row_count;
  core_->scheduler.chunk_done(id);
  if (computed < prompt_tokens) return false;

  const int32_t token = result.token ? result.token->token : 0;
  FinishReason finish = FinishReason::kNone;
  if (computed == prompt_tokens) {
    finish = give_first(row, request, result);
  } else {
    TokenEvent event{.id = id};
    event.has_token = true;
    event.token = std::move(*result.token);
    event.finish = finish = finish_after(*request.submit, token, computed + 1 - prompt_tokens);
    events_.push_back(std::move(event));
  }
  if (finish == FinishReason::kNone) {
    core_->scheduler.token_sampled(id, token);
    return false;
  }
  core_->scheduler.finish(id);
  return true;
}

FinishReason WholeEngine::give_first(const sched::PlanRow& row, Request& request,
                                     RowResult& result) {
  request.progress.last_chunk_end = clock_.now();
  const auto finish = coordinator_.first_token(
      request.progress.first_token(*request.submit, std::move(result.token), clock_.now()));
  CHECK(finish.has_value(), "request {} ended during its own step", row.id.value);
  coordinator_.advance(row.id, RequestState::kDecode);
  return *finish;
}

void WholeEngine::publish(TimePoint now) {
  EngineStatus status{.steps = steps_, .last_step = now, .accepting = coordinator_.accepting()};
  status.workers = {core_->status()};
  link_.publish(std::move(status));
  published_ = now;
  ever_published_ = true;
}

void WholeEngine::check_invariants() const {
  core_->pool.check_invariants();
  core_->cache.check_invariants();
  core_->scheduler.check_invariants();
}

}  // namespace tandem::engine
