// SPDX-License-Identifier: Apache-2.0
#include "engine/decode_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "kv/sequence_pages.h"

namespace tandem::engine {

Result<std::unique_ptr<DecodeWorker>> DecodeWorker::create(const DecodeSettings& settings,
                                                           Compute compute, Peers peers) {
  if (settings.handoff_attempts_max < 1) {
    return Error{ErrorCode::kInvalidArgument, "must be at least 1", "handoff_attempts_max"};
  }
  auto core = TRY(WorkerCore::create(settings.worker, sched::Role::kDecode, std::move(compute)));
  KvExport exported = TRY(export_kv(core->kv, peers.transport));
  return std::unique_ptr<DecodeWorker>(
      new DecodeWorker(settings, std::move(core), std::move(exported), peers));
}

DecodeWorker::DecodeWorker(const DecodeSettings& settings, std::unique_ptr<WorkerCore> core,
                           KvExport exported, Peers peers)
    : settings_(settings),
      core_(std::move(core)),
      peers_(peers),
      export_(std::move(exported)),
      incoming_(core_->kv, settings.incoming) {}

void DecodeWorker::submit(SubmitPtr request) {
  const RequestId id = request->id;
  if (request->max_tokens <= 1) {  // nothing is decoded: the prefiller serves it alone
    outbox_.emplace_back(PrefillOrder{.submit = std::move(request), .target = std::nullopt});
    return;
  }
  auto added = core_->scheduler.add(core_->spec_of(*request));
  if (!added.ok()) {
    peers_.coordinator.end(id, FinishReason::kError, std::move(added).error());
    return;
  }
  requests_[id].submit = std::move(request);
}

void DecodeWorker::cancel(RequestId id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) {
    outbox_.emplace_back(PrefillCancel{.id = id});  // the prefiller serves it alone
  } else {
    abandon(id, it->second);
  }
  peers_.coordinator.end(id, FinishReason::kCancelled);
}

bool DecodeWorker::step(TimePoint now) {
  peers_.transport.step(now);
  bool worked = incoming_.step(peers_.transport);
  take_ends(now);
  worked |= look_at_handoffs(now);
  const sched::Plan& plan = core_->scheduler.step(now);
  for (const sched::Ended& ended : plan.ended) {
    const auto it = requests_.find(ended.id);
    CHECK(it != requests_.end(), "request {}", ended.id.value);
    abandon(ended.id, it->second);
    peers_.coordinator.end(ended.id, FinishReason::kError, deadline_error());
  }
  for (const sched::Admitted& admitted : plan.admitted) {
    Request& request = requests_.at(admitted.id);
    request.first_page = admitted.cached_tokens / core_->kv.layout().page_tokens;
    request.key = {.handoff = {next_handoff_++}, .epoch = 0};
    peers_.coordinator.transfer_opened(admitted.id);
    handoffs_.push_back(admitted.id);
    ask(admitted.id, request, now);
  }
  worked |= !plan.rows.empty() || !plan.admitted.empty() || !plan.ended.empty();
  if (!plan.rows.empty()) decode(plan);
  flush_outbox();
  return worked;
}

// Pages are reserved and the parts expected before the prefiller hears of it.
void DecodeWorker::ask(RequestId id, Request& request, TimePoint now) {
  ++request.key.epoch;
  ++request.attempts;
  ++stats_.asked;
  request.phase = Phase::kAsked;
  request.wait_until = now + settings_.handoff_wait_max;
  request.cancel_sent = false;
  const auto prompt_tokens = static_cast<int32_t>(request.submit->prompt.size());
  const std::span<const PageId> pages = core_->scheduler.pages(id).first(
      static_cast<size_t>(kv::pages_for(prompt_tokens, core_->kv.layout().page_tokens)));
  HandoffTarget target{.key = request.key, .first_page = request.first_page};
  target.pages.assign(pages.begin() + request.first_page, pages.end());
  incoming_.expect(target, prompt_tokens);
  outbox_.emplace_back(PrefillOrder{.submit = request.submit, .target = std::move(target)});
}

void DecodeWorker::take_ends(TimePoint now) {
  ends_.clear();
  peers_.queues.to_decode.take(ends_);
  for (const HandoffEnd& end : ends_) handle_end(end, now);
}

void DecodeWorker::handle_end(const HandoffEnd& end, TimePoint now) {
  const auto it = requests_.find(end.id);
  const bool due = it != requests_.end() && it->second.key == end.key &&
                   (it->second.phase == Phase::kAsked || it->second.phase == Phase::kAbandoned);
  if (!due) {
    ++stats_.stale_messages;
    return;
  }
  Request& request = it->second;
  if (request.phase == Phase::kAbandoned || end.outcome == HandoffOutcome::kFinished) {
    if (request.phase != Phase::kAbandoned) core_->scheduler.cancel(end.id);
    settle(end.id, request);
    return;
  }
  if (end.outcome != HandoffOutcome::kComplete) {
    reject(end.id, request,
           end.outcome == HandoffOutcome::kFailed ? "a transfer failed" : "it took too long", now);
    return;
  }
  request.phase = Phase::kVerifying;
  request.first_token = end.first_token;
  request.last_chunk_end = end.last_chunk_end;
  incoming_.ended(end, now);
}

bool DecodeWorker::look_at_handoffs(TimePoint now) {
  bool worked = false;
  for (size_t i = 0; i < handoffs_.size(); ++i) {
    const RequestId id = handoffs_[i];
    const auto it = requests_.find(id);
    if (it == requests_.end()) continue;
    Request& request = it->second;
    if (request.phase == Phase::kAsked && now >= request.wait_until) send_cancel(id, request);
    if (request.phase != Phase::kVerifying) continue;
    std::string_view why;
    const Verdict verdict = incoming_.verdict(request.key, now, why);
    worked |= verdict != Verdict::kWait;
    if (verdict == Verdict::kAccept) join(id, request);
    if (verdict == Verdict::kReject) reject(id, request, why, now);
  }
  std::erase_if(handoffs_, [this](RequestId id) {
    const auto it = requests_.find(id);
    return it == requests_.end() ||
           (it->second.phase != Phase::kAsked && it->second.phase != Phase::kVerifying);
  });
  return worked;
}

void DecodeWorker::join(RequestId id, Request& request) {
  core_->scheduler.join(id, request.first_token);
  incoming_.forget(request.key);
  request.phase = Phase::kRunning;
  ++stats_.joined;
  stats_.joined_after += peers_.clock.now() - request.last_chunk_end;
  peers_.coordinator.advance(id, RequestState::kDecode);
  peers_.coordinator.transfer_closed(id);
}

void DecodeWorker::reject(RequestId id, Request& request, std::string_view why, TimePoint now) {
  ++stats_.rejected;
  log::warn("handoff {} epoch {} of request {}: {}", request.key.handoff.value, request.key.epoch,
            id.value, why);
  incoming_.forget(request.key);
  if (request.attempts < settings_.handoff_attempts_max) {
    ask(id, request, now);
    return;
  }
  peers_.coordinator.end(id, FinishReason::kError,
                         Error{ErrorCode::kUnavailable,
                               "the prompt could not be handed to a decoder, please retry", ""});
  core_->scheduler.cancel(id);
  settle(id, request);
}

void DecodeWorker::abandon(RequestId id, Request& request) {
  core_->scheduler.cancel(id);  // false where the scheduler itself ended it
  switch (request.phase) {
    case Phase::kAbandoned:
      return;
    case Phase::kAsked:
      request.phase = Phase::kAbandoned;
      send_cancel(id, request);
      return;
    case Phase::kVerifying:
      settle(id, request);
      return;
    case Phase::kWaiting:
    case Phase::kRunning:
      requests_.erase(id);
      return;
  }
}

void DecodeWorker::settle(RequestId id, Request& request) {
  incoming_.forget(request.key);
  core_->scheduler.transfer_closed(id);
  peers_.coordinator.transfer_closed(id);
  requests_.erase(id);
}

void DecodeWorker::send_cancel(RequestId id, Request& request) {
  if (std::exchange(request.cancel_sent, true)) return;
  outbox_.emplace_back(PrefillCancel{.id = id, .key = request.key});
}

void DecodeWorker::decode(const sched::Plan& plan) {
  const std::span<RowResult> results = core_->runner.run(
      plan, core_->scheduler,
      [this](RequestId id) -> const Submit& { return *requests_.at(id).submit; }, {});
  for (size_t i = 0; i < results.size(); ++i) {
    const RequestId id = plan.rows[i].id;
    const auto it = requests_.find(id);
    RowResult& result = results[i];
    TokenEvent event{.id = id};
    if (result.error) {  // NaN: nothing of it is cached, nobody else is touched
      log::error("request {}: {}", id.value, result.error->text);
      core_->scheduler.cancel(id);
      event.finish = FinishReason::kError;
      event.error = std::move(result.error);
    } else {
      core_->scheduler.chunk_done(id);
      const Submit& submit = *it->second.submit;
      const auto outputs =
          static_cast<int32_t>(core_->scheduler.tokens(id).size() + 1 - submit.prompt.size());
      event.has_token = true;
      event.token = std::move(*result.token);
      event.finish = finish_after(submit, event.token.token, outputs);
      if (event.finish == FinishReason::kNone) {
        core_->scheduler.token_sampled(id, event.token.token);
      } else {
        core_->scheduler.finish(id);
      }
    }
    if (event.finish != FinishReason::kNone) requests_.erase(it);
    events_.push_back(std::move(event));
  }
  peers_.coordinator.emit(events_);
}

void DecodeWorker::flush_outbox() {
  while (!outbox_.empty() && peers_.queues.to_prefill.try_push(outbox_.front())) {
    outbox_.pop_front();
  }
}

void DecodeWorker::check_invariants() const {
  core_->pool.check_invariants();
  core_->cache.check_invariants();
  core_->scheduler.check_invariants();
  for (const auto& [id, request] : requests_) {
    const bool open = request.phase == Phase::kAsked || request.phase == Phase::kVerifying;
    CHECK(!open || (incoming_.expects(request.key) && core_->scheduler.knows(id)));
    CHECK(request.phase != Phase::kAbandoned || !core_->scheduler.knows(id));
  }
}

}  // namespace tandem::engine
