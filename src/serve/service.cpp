// SPDX-License-Identifier: Apache-2.0
#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "serve/http_error.h"
#include "serve/openai_error.h"

namespace tandem::serve {
namespace {

GateContext gate_context(const ServiceOptions& options, const engine::EngineInfo& info) {
  return {.model_name = info.model_name,
          .vocab_size = info.vocab_size,
          .tokenizer_vocab_size = info.tokenizer_vocab_size,
          .context_tokens_max = info.context_tokens_max,
          .kv_tokens_max = info.kv_tokens_max,
          .sampling_defaults = options.sampling_defaults,
          .eos_ids = options.eos_ids,
          .limits = options.limits};
}

int64_t system_unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Error busy(std::string text) {
  return Error{ErrorCode::kResourceExhausted, std::move(text), ""};
}

Error shutting_down() {
  return Error{ErrorCode::kUnavailable, "the server is shutting down; retry elsewhere", ""};
}

// Equal for the requests of one tenant, and nothing that another tenant could guess.
uint64_t cache_salt(uint64_t tenant, uint64_t key) {
  if (tenant == 0) return 0;
  const auto words =
      philox4x32({static_cast<uint32_t>(tenant), static_cast<uint32_t>(tenant >> 32), 0, 0},
                 {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  return (static_cast<uint64_t>(words[1]) << 32) | words[0];
}

}  // namespace

struct Service::Active {
  template <typename... Args>
  explicit Active(Args&&... args) : generation(std::forward<Args>(args)...) {}

  Generation generation;
  size_t open_slots = 0;  // choices whose last event has not come
  uint64_t tenant = 0;
  int64_t charge = 0;  // of the tenant's budget
  bool touched = false;
};

Service::Service(ServiceOptions options, engine::EngineInfo info, const text::Tokenizer& tokenizer,
                 const text::ChatTemplate* chat_template, engine::Link& link, Executors executors,
                 const Clock& clock)
    : options_(std::move(options)),
      info_(std::move(info)),
      context_{.gate = gate_context(options_, info_),
               .tokenizer = &tokenizer,
               .chat_template = chat_template,
               .clock = &clock,
               .prompt_specials = options_.prompt_specials},
      link_(link),
      executors_(std::move(executors)),
      clock_(clock),
      rng_(options_.seed),
      salt_key_(rng_.next_u64()),
      host_{
          .tokenizer = &tokenizer, .link = &link, .metrics = &metrics_, .limits = options_.stream},
      health_(options_.health) {
  if (!options_.unix_seconds) options_.unix_seconds = system_unix_seconds;
  started_unix_ = options_.unix_seconds();
  link_.on_events([this] { executors_.post_io([this] { on_engine_events(); }); });
}

Service::~Service() = default;

Result<void> Service::admit(const Exchange& exchange) const {
  if (draining_) return shutting_down();
  if (exchange.request().content_type != kJsonType) {
    return Error{ErrorCode::kInvalidArgument, "Content-Type must be application/json", ""};
  }
  if (pending_.size() >= options_.preparing_max) return busy("too many requests at once; retry");
  return {};
}

void Service::start(std::shared_ptr<Exchange> exchange, Preparation work) {
  ++metrics_.requests;
  if (const auto admitted = admit(*exchange); !admitted) {
    refuse(*exchange, admitted.error());
    return;
  }
  const uint64_t ticket = next_ticket_++;
  auto body = std::make_shared<std::string>(std::move(exchange->request().body));
  // The exchange stays on this thread: the worker knows only its ticket.
  pending_.emplace(ticket, exchange);
  metrics_.preparing = static_cast<int64_t>(pending_.size());
  const bool posted = executors_.try_post_work(
      [work = std::move(work), ticket, body = std::move(body)] { work(ticket, *body); });
  if (posted) return;
  pending_.erase(ticket);
  metrics_.preparing = static_cast<int64_t>(pending_.size());
  refuse(*exchange, busy("too many requests at once; retry"));
}

std::shared_ptr<Exchange> Service::take_pending(uint64_t ticket) {
  const auto found = pending_.find(ticket);
  if (found == pending_.end()) return nullptr;
  std::shared_ptr<Exchange> exchange = std::move(found->second);
  pending_.erase(found);
  metrics_.preparing = static_cast<int64_t>(pending_.size());
  if (!exchange->gone()) return exchange;
  metrics_.end(Outcome::kCancelled);
  return nullptr;
}

void Service::generate(Endpoint endpoint, std::shared_ptr<Exchange> exchange) {
  start(std::move(exchange), [this, endpoint](uint64_t ticket, const std::string& body) {
    auto result =
        std::make_shared<Result<PreparedGeneration>>(prepare_generation(context_, endpoint, body));
    executors_.post_io([this, ticket, result] { prepared(ticket, std::move(*result)); });
  });
}

void Service::answer_plainly(PlainAnswerer answerer, std::shared_ptr<Exchange> exchange) {
  start(std::move(exchange), [this, answerer](uint64_t ticket, const std::string& body) {
    auto result = std::make_shared<Result<PlainAnswer>>(answerer(context_, body));
    executors_.post_io([this, ticket, result] { answered(ticket, std::move(*result)); });
  });
}

void Service::answered(uint64_t ticket, Result<PlainAnswer> result) {
  const auto exchange = take_pending(ticket);
  if (!exchange) return;
  if (!result) {
    refuse(*exchange, result.error());
    return;
  }
  metrics_.unknown_fields += static_cast<int64_t>(result->unknown_fields);
  exchange->reply(200, std::string(kJsonType), std::move(result->json));
  metrics_.end(Outcome::kOk);
}

void Service::prepared(uint64_t ticket, Result<PreparedGeneration> result) {
  auto exchange = take_pending(ticket);
  if (!exchange) return;
  if (!result) {
    refuse(*exchange, result.error());
    return;
  }
  metrics_.unknown_fields += static_cast<int64_t>(result->request.unknown_fields);
  const Result<int64_t> charge = reserve(exchange->request().tenant, *result);
  if (!charge) {
    refuse(*exchange, charge.error());
    return;
  }
  submit(std::move(exchange), std::move(*result), *charge);
}

Result<int64_t> Service::reserve(uint64_t tenant, const PreparedGeneration& prepared) const {
  if (draining_) return shutting_down();
  const int64_t n = prepared.request.n;
  int64_t charge = 0;
  for (const PreparedPrompt& prompt : prepared.prompts) {
    charge += n * (static_cast<int64_t>(prompt.ids.size()) + prompt.max_tokens);
  }
  const auto choices = static_cast<size_t>(n) * prepared.prompts.size();
  const auto queue = static_cast<size_t>(std::max(info_.queue_requests_max, 0));
  if (charge > options_.tenant_tokens_max || (queue > 0 && choices > queue)) {
    return invalid_field("n",
                         "n times the prompt and output tokens is more than this server "
                         "gives one request");
  }
  if (queue > 0 && slots_.size() + choices > queue) return busy("the queue is full; retry");
  const auto used = tenant_tokens_.find(tenant);
  if (used != tenant_tokens_.end() && used->second + charge > options_.tenant_tokens_max) {
    return busy("this key has too many tokens in flight; retry");
  }
  return charge;
}

engine::Submit Service::make_submit(uint64_t tenant, const PreparedGeneration& prepared,
                                    size_t choice, TimePoint now) {
  const GenerationRequest& request = prepared.request;
  const auto n = static_cast<size_t>(request.n);
  const PreparedPrompt& prompt = prepared.prompts[choice / n];
  engine::Submit submit{.id = RequestId{next_id_++},
                        .prompt = prompt.ids,
                        .sampling = request.sampling,
                        .max_tokens = prompt.max_tokens,
                        .stop_ids = request.stop_token_ids,
                        .cache_salt = cache_salt(tenant, salt_key_),
                        .tenant = tenant,
                        .deadline = now + options_.request_deadline,
                        .submitted = now};
  submit.sampling.choice_idx = static_cast<uint32_t>(choice % n);
  if (!request.ignore_eos) {
    submit.stop_ids.insert(submit.stop_ids.end(), options_.eos_ids.begin(), options_.eos_ids.end());
  }
  if (request.echo && request.sampling.logprobs >= 0) {
    submit.prompt_logprobs = request.sampling.logprobs;
  } else if (prompt.max_tokens == 0) {
    submit.prompt_logprobs = 0;  // an echo alone: the engine allows no output only with these
  }
  return submit;
}

void Service::submit(std::shared_ptr<Exchange> exchange, PreparedGeneration prepared,
                     int64_t charge) {
  const TimePoint now = clock_.now();
  const uint64_t tenant = exchange->request().tenant;
  if (!prepared.request.has_seed) prepared.request.sampling.seed = rng_.next_u64();
  const size_t choices = static_cast<size_t>(prepared.request.n) * prepared.prompts.size();
  std::vector<RequestId> ids;
  for (size_t i = 0; i < choices; ++i) {
    engine::Submit choice = make_submit(tenant, prepared, i, now);
    const RequestId id = choice.id;
    if (!link_.try_submit(choice)) {
      for (const RequestId submitted : ids) link_.cancel(submitted);
      refuse(*exchange, busy("the engine's queue is full; retry"));
      return;
    }
    ids.push_back(id);
  }
  if (slots_.empty()) health_.work_began(now);
  const bool chat = prepared.request.endpoint == Endpoint::kChat;
  AnswerHead head{.endpoint = prepared.request.endpoint,
                  .id = (chat ? "chatcmpl-" : "cmpl-") + exchange->request().request_id,
                  .created = options_.unix_seconds(),
                  .model = info_.model_name,
                  .fingerprint = options_.fingerprint,
                  .include_usage = prepared.request.include_usage};
  auto active =
      std::make_shared<Active>(host_, exchange, std::move(prepared), std::move(head), ids, now);
  active->open_slots = ids.size();
  active->tenant = tenant;
  active->charge = charge;
  tenant_tokens_[tenant] += charge;
  for (size_t i = 0; i < ids.size(); ++i) slots_.emplace(ids[i].value, Slot{active, i});
  exchange->on_gone([this, weak = std::weak_ptr(active)] {
    if (const auto alive = weak.lock()) alive->generation.client_gone(clock_.now());
  });
}

void Service::on_engine_events() {
  events_.clear();
  link_.take_events(events_);
  if (events_.empty()) return;
  const TimePoint now = clock_.now();
  for (engine::TokenEvent& event : events_) {
    const auto slot = slots_.find(event.id.value);
    if (slot == slots_.end()) continue;  // of a request that was given up before it was answered
    const std::shared_ptr<Active>& active = slot->second.active;
    const bool last = event.finish != engine::FinishReason::kNone;
    if (!active->touched) {
      active->touched = true;
      touched_.push_back(active);
    }
    active->generation.on_event(slot->second.choice, std::move(event), now);
    if (last) close_slot(slot);
  }
  for (const auto& active : touched_) {
    active->generation.flush(now);
    active->touched = false;
  }
  touched_.clear();
}

void Service::close_slot(std::unordered_map<uint64_t, Slot>::iterator slot) {
  Active& active = *slot->second.active;
  if (--active.open_slots == 0) {
    const auto budget = tenant_tokens_.find(active.tenant);
    budget->second -= active.charge;
    if (budget->second == 0) tenant_tokens_.erase(budget);
  }
  slots_.erase(slot);
}

void Service::end_all() {
  draining_ = true;
  const TimePoint now = clock_.now();
  for (const auto& [ticket, exchange] : pending_) refuse(*exchange, shutting_down());
  pending_.clear();
  metrics_.preparing = 0;
  for (const auto& [id, slot] : slots_) slot.active->generation.fail(shutting_down(), now);
}

void Service::refuse(Exchange& exchange, const Error& error) {
  const int status = http_status(error.code);
  metrics_.count_error(error.code);
  metrics_.end(status < 500 ? Outcome::kClientError : Outcome::kFailed);
  std::vector<std::pair<std::string, std::string>> headers;
  if (is_retryable(error.code)) headers.emplace_back("Retry-After", "1");
  exchange.reply(status, std::string(kJsonType), error_json(error), std::move(headers));
}

}  // namespace tandem::serve
