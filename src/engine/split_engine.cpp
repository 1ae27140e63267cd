// SPDX-License-Identifier: Apache-2.0
#include "engine/split_engine.h"

#include <algorithm>
#include <utility>

namespace tandem::engine {

SplitTransports make_loopback_transports(transfer::LoopbackLimits limits) {
  transfer::LoopbackFabric fabric(limits);  // its endpoints share what it holds
  SplitTransports transports;
  transports.prefill = fabric.make_endpoint();
  transports.decode = fabric.make_endpoint();
  return transports;
}

Result<std::unique_ptr<SplitEngine>> SplitEngine::create(const SplitSettings& settings,
                                                         Parts parts) {
  const EngineLimits& limits = settings.limits;
  const WorkerSettings& prefill = settings.prefill.worker;
  const WorkerSettings& decode = settings.decode.worker;
  if (parts.prefill.vocab != parts.decode.vocab) {
    return Error{ErrorCode::kInvalidArgument, "prefiller and decoder differ in vocab", "vocab"};
  }
  if (limits.queue_requests_max < 1) {
    return Error{ErrorCode::kInvalidArgument, "must be at least 1", "queue_requests_max"};
  }
  const int64_t kv_tokens =
      std::min(static_cast<int64_t>(prefill.page_count) * parts.prefill.kv_layout.page_tokens,
               static_cast<int64_t>(decode.page_count) * parts.decode.kv_layout.page_tokens);
  EngineInfo info{.model_name = limits.model_name,
                  .vocab_size = parts.prefill.vocab,
                  .tokenizer_vocab_size = limits.tokenizer_vocab_size,
                  .context_tokens_max =
                      std::min(prefill.sched.context_tokens_max, decode.sched.context_tokens_max),
                  .kv_tokens_max = kv_tokens,
                  .queue_requests_max = limits.queue_requests_max};
  std::unique_ptr<SplitEngine> engine(new SplitEngine(settings, std::move(info), parts));
  engine->prefill_ = TRY(PrefillWorker::create(settings.prefill, std::move(parts.prefill),
                                               {.transport = *engine->transports_.prefill,
                                                .coordinator = engine->coordinator_,
                                                .queues = engine->queues_,
                                                .clock = parts.clock}));
  engine->decode_ = TRY(DecodeWorker::create(settings.decode, std::move(parts.decode),
                                             {.transport = *engine->transports_.decode,
                                              .coordinator = engine->coordinator_,
                                              .queues = engine->queues_,
                                              .clock = parts.clock}));
  TRY(engine->prefill_->pair(engine->decode_->kv_export()));
  engine->prefill_status_ = engine->prefill_->status();
  return engine;
}

// Each open request has at most an order and a cancel under way, and one end message.
SplitEngine::SplitEngine(const SplitSettings& settings, EngineInfo info, Parts& parts)
    : publish_every_(settings.limits.publish_every),
      link_(parts.link),
      transports_(std::move(parts.transports)),
      coordinator_(std::move(info), parts.link),
      queues_(static_cast<size_t>(settings.limits.queue_requests_max) * 2) {
  queues_.to_prefill.on_push([this] { prefill_bell_.ring(); });
  queues_.to_decode.on_push([this] { link_.wake(); });
}

bool SplitEngine::step(TimePoint now) {
  const bool decoded = step_decode(now);
  return step_prefill(now) || decoded;
}

bool SplitEngine::step_prefill(TimePoint now) {
  const bool worked = prefill_->step(now);
  const std::lock_guard lock(prefill_status_mutex_);
  prefill_status_ = prefill_->status();
  prefill_bytes_ = prefill_->bytes_pushed();
  return worked;
}

bool SplitEngine::step_decode(TimePoint now) {
  submits_.clear();
  cancels_.clear();
  coordinator_.take_work(submits_, cancels_);
  const bool news = !submits_.empty() || !cancels_.empty();
  for (SubmitPtr& submit : submits_) decode_->submit(std::move(submit));
  for (const RequestId id : cancels_) decode_->cancel(id);
  const bool worked = decode_->step(now);
  ++steps_;
  if (!ever_published_ || now - published_ >= publish_every_) publish(now);
  return worked || news;
}

void SplitEngine::wake() {
  prefill_bell_.ring();
  link_.wake();
}

void SplitEngine::publish(TimePoint now) {
  EngineStatus status{.steps = steps_, .last_step = now, .accepting = coordinator_.accepting()};
  {
    const std::lock_guard lock(prefill_status_mutex_);
    status.workers = {prefill_status_, decode_->status()};
    status.handoff_bytes = prefill_bytes_;
  }
  status.handoffs = decode_->stats().joined;
  status.handoff_rejects = decode_->stats().rejected;
  status.handoff_time = decode_->stats().joined_after;
  link_.publish(std::move(status));
  published_ = now;
  ever_published_ = true;
}

void SplitEngine::check_invariants() const {
  prefill_->check_invariants();
  decode_->check_invariants();
}

}  // namespace tandem::engine
