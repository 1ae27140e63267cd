// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/log.h"

namespace tandem::engine {
namespace {

bool in_range(std::span<const int32_t> ids, int32_t bound) {
  return std::all_of(ids.begin(), ids.end(), [bound](int32_t t) { return t >= 0 && t < bound; });
}

TokenEvent last_event(RequestId id, FinishReason reason, std::optional<Error> error) {
  TokenEvent event{.id = id};
  event.finish = reason;
  event.error = std::move(error);
  return event;
}

}  // namespace

FinishReason finish_after(const Submit& submit, int32_t token, int32_t outputs) {
  if (std::find(submit.stop_ids.begin(), submit.stop_ids.end(), token) != submit.stop_ids.end()) {
    return FinishReason::kStop;
  }
  return outputs >= submit.max_tokens ? FinishReason::kLength : FinishReason::kNone;
}

// The front end is the gate; this is the engine's own look at whatever will become an index.
std::optional<Error> Coordinator::refusal(const Submit& submit) const {
  if (!accepting_) return Error{ErrorCode::kUnavailable, "the server is shutting down", ""};
  const auto invalid = [](std::string text, std::string param) {
    return Error{ErrorCode::kInvalidArgument, std::move(text), std::move(param)};
  };
  if (submit.prompt.empty()) return invalid("the prompt is empty", "prompt");
  if (!in_range(submit.prompt, info_.vocab_size)) return invalid("no such token id", "prompt");
  if (!in_range(submit.stop_ids, info_.vocab_size)) return invalid("no such token id", "stop");
  for (const auto& [token, bias] : submit.sampling.logit_bias) {
    if (token < 0 || token >= info_.vocab_size) return invalid("no such token id", "logit_bias");
  }
  const bool scores = submit.prompt_logprobs >= 0;
  if (submit.max_tokens < (scores ? 0 : 1)) return invalid("must be at least 1", "max_tokens");
  const int64_t tokens = static_cast<int64_t>(submit.prompt.size()) + submit.max_tokens;
  if (tokens > info_.context_tokens_max) {
    return invalid(fmt::format("{} tokens of prompt and output are more than the {} of the context",
                               tokens, info_.context_tokens_max),
                   "max_tokens");
  }
  if (tokens - 1 > info_.kv_tokens_max) {  // the last output token is never an input
    return invalid(
        fmt::format("{} tokens of prompt and output are more than the {} of the KV cache", tokens,
                    info_.kv_tokens_max),
        "max_tokens");
  }
  const size_t open = book_.size() - quarantined_;
  if (open >= static_cast<size_t>(info_.queue_requests_max)) {
    return Error{ErrorCode::kResourceExhausted, "too many requests are waiting", ""};
  }
  return std::nullopt;
}

void Coordinator::take_work(std::vector<SubmitPtr>& submits, std::vector<RequestId>& cancels) {
  const std::lock_guard lock(mutex_);
  link_.take_work(work_);
  std::vector<TokenEvent> refused;
  for (Submit& submit : work_.submits) {
    CHECK(!book_.contains(submit.id), "request {} is submitted twice", submit.id.value);
    if (std::optional<Error> error = refusal(submit)) {
      refused.push_back(last_event(submit.id, FinishReason::kError, std::move(error)));
      continue;
    }
    SubmitPtr kept = std::make_shared<const Submit>(std::move(submit));
    book_[kept->id] = {.submit = kept};
    submits.push_back(std::move(kept));
  }
  for (const RequestId id : work_.cancels) {
    const auto it = book_.find(id);
    if (it == book_.end() || it->second.state == RequestState::kQuarantined) continue;
    it->second.state = RequestState::kCancelling;
    cancels.push_back(id);
  }
  work_.submits.clear();
  work_.cancels.clear();
  link_.emit(std::move(refused));
}

void Coordinator::drain() {
  const std::lock_guard lock(mutex_);
  accepting_ = false;
}

bool Coordinator::advance(RequestId id, RequestState state) {
  const std::lock_guard lock(mutex_);
  const auto it = book_.find(id);
  if (it == book_.end() || it->second.state >= RequestState::kCancelling) return false;
  it->second.state = state;
  return true;
}

std::optional<FinishReason> Coordinator::first_token(FirstToken first) {
  const std::lock_guard lock(mutex_);
  const auto it = book_.find(first.id);
  if (it == book_.end() || it->second.state >= RequestState::kCancelling) return std::nullopt;
  Record& record = it->second;
  if (record.first_event_sent) {
    if (first.token && record.first_token == first.token->token) return FinishReason::kNone;
    log::error("request {}: its prompt gave another first token the second time", first.id.value);
    std::vector<TokenEvent> events{last_event(
        first.id, FinishReason::kError,
        Error{ErrorCode::kInternal, "the prompt's computation could not be repeated", ""})};
    link_.emit(std::move(events));
    close(first.id, record);
    return FinishReason::kError;
  }
  TokenEvent event{.id = first.id};
  event.has_token = first.token.has_value();
  if (first.token) {
    record.first_token = first.token->token;
    event.finish = finish_after(*record.submit, first.token->token, 1);
    event.token = std::move(*first.token);
  } else {
    event.finish = FinishReason::kLength;
  }
  event.prompt_cached_tokens = first.prompt_cached_tokens;
  event.timings = first.timings;
  event.prompt_logprobs = std::move(first.prompt_logprobs);
  record.first_event_sent = true;
  const FinishReason finish = event.finish;
  std::vector<TokenEvent> events;
  events.push_back(std::move(event));
  link_.emit(std::move(events));
  if (finish != FinishReason::kNone) close(first.id, record);
  return finish;
}

void Coordinator::emit(std::vector<TokenEvent>& events) {
  if (events.empty()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(events, [this](const TokenEvent& event) {
    const auto it = book_.find(event.id);
    if (it == book_.end() || it->second.state >= RequestState::kCancelling) return true;
    if (event.finish != FinishReason::kNone) close(event.id, it->second);
    return false;
  });
  link_.emit(std::move(events));
  events.clear();
}

bool Coordinator::end(RequestId id, FinishReason reason, std::optional<Error> error) {
  const std::lock_guard lock(mutex_);
  const auto it = book_.find(id);
  if (it == book_.end() || it->second.state == RequestState::kQuarantined) return false;
  std::vector<TokenEvent> events{last_event(id, reason, std::move(error))};
  link_.emit(std::move(events));
  close(id, it->second);
  return true;
}

void Coordinator::close(RequestId id, Record& record) {
  if (!record.transfer_open) {
    book_.erase(id);
    return;
  }
  record.state = RequestState::kQuarantined;
  record.submit.reset();
  ++quarantined_;
}

void Coordinator::transfer_opened(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto it = book_.find(id);
  CHECK(it != book_.end(), "request {}", id.value);
  it->second.transfer_open = true;
}

void Coordinator::transfer_closed(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto it = book_.find(id);
  CHECK(it != book_.end() && it->second.transfer_open, "request {}", id.value);
  it->second.transfer_open = false;
  if (it->second.state != RequestState::kQuarantined) return;
  --quarantined_;
  book_.erase(it);
}

std::optional<RequestState> Coordinator::state(RequestId id) const {
  const std::lock_guard lock(mutex_);
  const auto it = book_.find(id);
  if (it == book_.end()) return std::nullopt;
  return it->second.state;
}

bool Coordinator::idle() const {
  const std::lock_guard lock(mutex_);
  return book_.empty();
}

bool Coordinator::accepting() const {
  const std::lock_guard lock(mutex_);
  return accepting_;
}

size_t Coordinator::open_requests() const {
  const std::lock_guard lock(mutex_);
  return book_.size() - quarantined_;
}

}  // namespace tandem::engine
