// SPDX-License-Identifier: Apache-2.0
#include "serve/stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "serve/http_error.h"
#include "serve/openai_error.h"

namespace tandem::serve {
namespace {

using engine::FinishReason;
using engine::TokenEvent;

// Why the engine ended a request that nobody here had given up.
Error engine_error(TokenEvent& event) {
  if (event.error) return std::move(*event.error);
  if (event.finish == FinishReason::kCancelled) {
    return Error{ErrorCode::kUnavailable, "the server stopped this request; it may be retried", ""};
  }
  return Error{ErrorCode::kInternal, "the engine gave no reason", ""};
}

}  // namespace

Generation::Generation(const GenerationHost& host, std::shared_ptr<Exchange> exchange,
                       PreparedGeneration prepared, AnswerHead head, std::vector<RequestId> ids,
                       TimePoint submitted)
    : host_(host),
      exchange_(std::move(exchange)),
      request_(std::move(prepared.request)),
      prompts_(std::move(prepared.prompts)),
      times_(prepared.times),
      received_(exchange_->request().received),
      submitted_(submitted),
      head_(std::move(head)),
      chunks_(head_),
      open_choices_(ids.size()) {
  const auto n = static_cast<size_t>(request_.n);
  CHECK(ids.size() == n * prompts_.size(), "{} ids for {} prompts", ids.size(), prompts_.size());
  choices_.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    choices_.push_back({.id = ids[i],
                        .index = static_cast<int32_t>(i),
                        .prompt_idx = i / n,
                        .detokenizer = {*host_.tokenizer, request_.skip_special_tokens},
                        .stops = text::StopMatcher(request_.stops)});
  }
  for (PreparedPrompt& prompt : prompts_) {
    usage_.prompt_tokens += static_cast<int64_t>(prompt.ids.size());
    if (!request_.echo) std::vector<int32_t>().swap(prompt.ids);
  }
  ++host_.metrics->running;
  if (request_.stream) ++host_.metrics->streams;
  host_.metrics->prompt_tokens += usage_.prompt_tokens;
}

void Generation::on_event(size_t index, TokenEvent&& event, TimePoint now) {
  if (ended_) return;
  Choice& choice = choices_[index];
  if (choice.finish != FinishReason::kNone) return;  // a stop string came first; the rest is ours
  if (event.finish == FinishReason::kError || event.finish == FinishReason::kCancelled) {
    fail(engine_error(event), now);
    return;
  }
  if (!choice.begun) on_first_event(choice, event, now);
  if (event.has_token) add_token(choice, event);
  if (choice.finish == FinishReason::kNone && event.finish != FinishReason::kNone) {
    piece_.clear();
    choice.detokenizer.finish(piece_);
    if (choice.stops.push(piece_, choice.fresh)) {
      finish_choice(choice, FinishReason::kStop);
      return;
    }
    choice.stops.finish(choice.fresh);
    finish_choice(choice, event.finish);
  }
}

void Generation::on_first_event(Choice& choice, TokenEvent& event, TimePoint now) {
  choice.begun = true;
  choice.last_token = now;
  if (event.timings && !first_token_out_) engine_times_ = *event.timings;
  // The choices of a prompt share its pages: only the first one's hits say what the cache held.
  if (choice.index % request_.n == 0) {
    usage_.cached_tokens += event.prompt_cached_tokens;
    host_.metrics->cached_tokens += event.prompt_cached_tokens;
  }
  if (request_.echo) add_echo(choice, event);
}

void Generation::add_echo(Choice& choice, TokenEvent& event) {
  const std::vector<int32_t>& ids = prompts_[choice.prompt_idx].ids;
  choice.fresh += host_.tokenizer->decode(ids, false);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (scores()) {
      ScoredToken scored{.token = {.token = ids[i]},
                         .text_offset = choice.characters,
                         .has_logprob = i > 0 && i <= event.prompt_logprobs.size()};
      if (scored.has_logprob) scored.token = std::move(event.prompt_logprobs[i - 1]);
      choice.scored.push_back(std::move(scored));
    }
    choice.characters += characters_in(host_.tokenizer->token_bytes(ids[i]));
  }
}

void Generation::add_token(Choice& choice, TokenEvent& event) {
  ++usage_.completion_tokens;
  ++choice.tokens_since_flush;
  const int32_t id = event.token.token;
  if (event.finish == FinishReason::kStop) return;  // a stop id ends the text and is none of it
  if (scores()) {
    choice.scored.push_back({.token = std::move(event.token), .text_offset = choice.characters});
    choice.characters += characters_in(host_.tokenizer->token_bytes(id));
  }
  if (request_.stops.empty()) {
    choice.detokenizer.push(id, choice.fresh);
    return;
  }
  piece_.clear();
  choice.detokenizer.push(id, piece_);
  if (!choice.stops.push(piece_, choice.fresh)) return;
  if (event.finish == FinishReason::kNone) host_.link->cancel(choice.id);
  finish_choice(choice, FinishReason::kStop);
}

void Generation::finish_choice(Choice& choice, FinishReason reason) {
  choice.finish = reason;
  --open_choices_;
}

std::string Generation::logprobs_json(const Choice& choice) const {
  if (!scores()) return {};
  return request_.endpoint == Endpoint::kChat
             ? chat_logprobs_json(*host_.tokenizer, choice.scored)
             : completion_logprobs_json(*host_.tokenizer, choice.scored);
}

void Generation::flush(TimePoint now) {
  if (ended_) return;
  for (Choice& choice : choices_) observe_times(choice, now);
  if (!request_.stream) {
    if (open_choices_ == 0) answer_whole(now);
    return;
  }
  std::string out;
  for (Choice& choice : choices_) flush_choice(choice, out);
  if (open_choices_ == 0) {
    finish_stream(out, now);
    return;
  }
  if (out.empty()) return;
  send(std::move(out));
  if (!ended_) check_slow_client(now);
}

void Generation::flush_choice(Choice& choice, std::string& out) {
  if (!choice.begun || choice.closed) return;
  if (!streaming_) {
    streaming_ = true;
    exchange_->begin_stream(std::string(kEventStreamType));
  }
  if (!choice.opened) {
    choice.opened = true;
    if (request_.endpoint == Endpoint::kChat) chunks_.role(out, choice.index);
  }
  if (!choice.fresh.empty() || !choice.scored.empty()) {
    chunks_.text(out, choice.index, choice.fresh, logprobs_json(choice));
    choice.fresh.clear();
    choice.scored.clear();
  }
  if (choice.finish != FinishReason::kNone) {
    choice.closed = true;
    chunks_.finish(out, choice.index, choice.finish);
  }
}

void Generation::send(std::string bytes) {
  // The HTTP side may find the client gone while it takes the bytes, and call client_gone().
  const std::shared_ptr<Exchange> keep = exchange_;
  keep->send(std::move(bytes));
}

void Generation::finish_stream(std::string& out, TimePoint now) {
  if (request_.include_usage) chunks_.usage(out, usage_);
  out += kStreamDone;
  send(std::move(out));
  if (ended_) return;
  exchange_->end();
  end(Outcome::kOk, now);
}

void Generation::answer_whole(TimePoint now) {
  std::vector<std::string> logprobs;
  std::vector<WholeChoice> whole;
  logprobs.reserve(choices_.size());
  whole.reserve(choices_.size());
  for (const Choice& choice : choices_) {
    logprobs.push_back(logprobs_json(choice));
    whole.push_back({.index = choice.index,
                     .text = choice.fresh,
                     .logprobs = logprobs.back(),
                     .finish = choice.finish});
  }
  exchange_->reply(200, std::string(kJsonType), whole_answer_json(head_, whole, usage_));
  end(Outcome::kOk, now);
}

void Generation::observe_times(Choice& choice, TimePoint now) {
  if (choice.tokens_since_flush == 0) return;
  Metrics& metrics = *host_.metrics;
  metrics.completion_tokens += choice.tokens_since_flush;
  if (!first_token_out_) {
    first_token_out_ = true;
    metrics.first_token.observe(now - received_);
    const engine::EngineTimings& e = engine_times_;
    const TimePoint first_token = submitted_ + e.queue + e.prefill + e.sample;
    const std::array<Duration, kFirstTokenPartNames.size()> parts = {
        times_.begun - received_,
        times_.parsed - times_.begun,
        times_.rendered - times_.parsed,
        times_.tokenised - times_.rendered,
        submitted_ - times_.tokenised,
        e.queue,
        e.prefill,
        e.sample,
        now - first_token};
    for (size_t i = 0; i < parts.size(); ++i) metrics.first_token_parts[i].observe(parts[i]);
  }
  if (!choice.timed) {
    choice.timed = true;
    --choice.tokens_since_flush;
  }
  if (choice.tokens_since_flush > 0) {
    // Tokens that came in one batch share the time since the last one.
    metrics.inter_token.observe((now - choice.last_token) / choice.tokens_since_flush,
                                choice.tokens_since_flush);
  }
  choice.last_token = now;
  choice.tokens_since_flush = 0;
}

void Generation::check_slow_client(TimePoint now) {
  const size_t unsent = exchange_->unsent_bytes();
  if (unsent <= host_.limits.unsent_bytes_slow) {
    slow_since_ = TimePoint::max();
    return;
  }
  if (slow_since_ == TimePoint::max()) slow_since_ = now;
  if (unsent <= host_.limits.unsent_bytes_max && now - slow_since_ < host_.limits.slow_grace) {
    return;
  }
  ++host_.metrics->slow_clients;
  client_gone(now);
}

void Generation::client_gone(TimePoint now) {
  if (ended_) return;
  end(Outcome::kCancelled, now);
}

void Generation::fail(const Error& error, TimePoint now) {
  if (ended_) return;
  host_.metrics->count_error(error.code);
  if (streaming_) {
    std::string out;
    ChunkWriter::error(out, error_json(error));
    send(std::move(out));
    if (ended_) return;
    exchange_->end();
  } else {
    std::vector<std::pair<std::string, std::string>> headers;
    if (is_retryable(error.code)) headers.emplace_back("Retry-After", "1");
    exchange_->reply(http_status(error.code), std::string(kJsonType), error_json(error),
                     std::move(headers));
  }
  end(http_status(error.code) < 500 ? Outcome::kClientError : Outcome::kFailed, now);
}

void Generation::end(Outcome outcome, TimePoint now) {
  ended_ = true;
  for (const Choice& choice : choices_) {
    if (choice.finish == FinishReason::kNone) host_.link->cancel(choice.id);
  }
  --host_.metrics->running;
  if (request_.stream) --host_.metrics->streams;
  host_.metrics->end(outcome);
  host_.metrics->request.observe(now - received_);
  // Dropping a stream that has not ended cuts it: a client that reads too slowly sees no false end.
  exchange_.reset();
}

}  // namespace tandem::serve
