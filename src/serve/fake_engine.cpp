// SPDX-License-Identifier: Apache-2.0
#include "serve/fake_engine.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace tandem::serve {
namespace {

using engine::FinishReason;

constexpr Duration kIdleWait = std::chrono::milliseconds(50);

// Made-up but well-formed: the token itself best, then its successors, each half as likely.
SampledToken scored(int32_t token, int32_t logprobs) {
  SampledToken out{.token = token, .logprob = -0.5F};
  for (int32_t i = 0; i < logprobs; ++i) {
    out.top.push_back({.token = token + i, .logprob = -0.5F - 0.6931472F * static_cast<float>(i)});
  }
  return out;
}

std::vector<SampledToken> score_prompt(const engine::Submit& request) {
  std::vector<SampledToken> out;
  for (size_t i = 1; i < request.prompt.size(); ++i) {
    out.push_back(scored(request.prompt[i], request.prompt_logprobs));
  }
  return out;
}

}  // namespace

FakeEngine::FakeEngine(FakeEngineOptions options, engine::Link& link)
    : options_(std::move(options)), link_(link) {
  CHECK(!options_.tokens.empty(), "a stand-in needs tokens to answer with");
}

bool FakeEngine::step(TimePoint now) {
  ++steps_;
  take_requests(now);
  bool more = false;
  for (size_t i = 0; i < running_.size();) {
    Running& running = running_[i];
    bool ended = false;
    if (cancelled_.contains(running.request.id.value)) {
      emit_end(running.request.id, FinishReason::kCancelled);
      ended = true;
    } else if (is_due(running, now)) {
      ended = emit_next(running, now);
    }
    if (ended) {
      if (i + 1 != running_.size()) running = std::move(running_.back());
      running_.pop_back();
    } else {
      more = more || is_due(running, now);
      ++i;
    }
  }
  cancelled_.clear();  // of requests that had ended already
  publish(now);
  link_.emit(std::move(events_));
  events_.clear();
  return more || (!waiting_.empty() && running_.size() < options_.running_max);
}

void FakeEngine::take_requests(TimePoint now) {
  work_.submits.clear();
  work_.cancels.clear();
  link_.take_work(work_);
  for (const RequestId id : work_.cancels) cancelled_.insert(id.value);
  for (engine::Submit& request : work_.submits) {
    if (waiting_.size() < options_.waiting_max) {
      waiting_.push_back(std::move(request));
    } else {
      events_.push_back({.id = request.id,
                         .finish = FinishReason::kError,
                         .error = Error{ErrorCode::kResourceExhausted, "the queue is full", ""}});
    }
  }
  size_t taken = 0;
  for (; taken < waiting_.size() && running_.size() < options_.running_max; ++taken) {
    running_.push_back({.request = std::move(waiting_[taken]), .started = now});
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(taken));
  std::erase_if(waiting_, [this](const engine::Submit& request) {
    if (!cancelled_.contains(request.id.value)) return false;
    emit_end(request.id, FinishReason::kCancelled);
    return true;
  });
}

bool FakeEngine::is_due(const Running& running, TimePoint now) const {
  if (options_.tokens_per_s <= 0) return true;
  const std::chrono::duration<double> after(running.emitted / options_.tokens_per_s);
  return running.started + std::chrono::duration_cast<Duration>(after) <= now;
}

bool FakeEngine::emit_next(Running& running, TimePoint now) {
  const engine::Submit& request = running.request;
  if (now > request.deadline) {
    events_.push_back({.id = request.id,
                       .finish = FinishReason::kError,
                       .error = Error{ErrorCode::kDeadlineExceeded, "took too long", ""}});
    return true;
  }
  engine::TokenEvent event{.id = request.id};
  if (running.emitted == 0) {
    event.timings = engine::EngineTimings{.queue = running.started - request.submitted,
                                          .sample = now - running.started};
    if (request.prompt_logprobs >= 0) event.prompt_logprobs = score_prompt(request);
  }
  if (request.max_tokens > 0) {
    const size_t at = static_cast<size_t>(running.emitted) % options_.tokens.size();
    const int32_t token = options_.tokens[at];
    event.has_token = true;
    event.token = scored(token, request.sampling.logprobs);
    ++running.emitted;
    ++tokens_;
    const auto& stops = request.stop_ids;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      event.finish = FinishReason::kStop;
    }
  }
  if (event.finish == FinishReason::kNone && running.emitted >= request.max_tokens) {
    event.finish = FinishReason::kLength;
  }
  const bool last = event.finish != FinishReason::kNone;
  events_.push_back(std::move(event));
  return last;
}

void FakeEngine::emit_end(RequestId id, FinishReason finish) {
  events_.push_back({.id = id, .finish = finish});
}

Duration FakeEngine::idle_wait(TimePoint now) const {
  if (options_.tokens_per_s <= 0 || running_.empty()) return kIdleWait;
  // The earliest next token; a short floor keeps a large batch from spinning.
  TimePoint next = now + kIdleWait;
  for (const Running& running : running_) {
    const std::chrono::duration<double> after(running.emitted / options_.tokens_per_s);
    next = std::min(next, running.started + std::chrono::duration_cast<Duration>(after));
  }
  return std::max<Duration>(next - now, std::chrono::microseconds(50));
}

void FakeEngine::publish(TimePoint now) {
  engine::EngineStatus status{.steps = steps_, .last_step = now};
  status.workers.push_back({.role = "stand-in",
                            .waiting = static_cast<int32_t>(waiting_.size()),
                            .running = static_cast<int32_t>(running_.size()),
                            .tokens_computed = tokens_,
                            .batch_rows_last = static_cast<int64_t>(running_.size())});
  link_.publish(std::move(status));
}

}  // namespace tandem::serve
