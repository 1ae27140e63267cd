// SPDX-License-Identifier: Apache-2.0
// The API server behind the HTTP side: one object that app/ makes. It turns exchanges into requests
// of the engine and the engine's events into answers. docs/api.md is its contract with clients.
//
// Threads: everything here runs on the I/O thread, but for the preparation of a body (parse,
// render, tokenise), which it posts to the workers. It must outlive the workers, the I/O loop and
// the engine's thread. Nothing blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "core/rng.h"
#include "engine/api.h"
#include "serve/admin.h"
#include "serve/exchange.h"
#include "serve/metrics.h"
#include "serve/openai_prepare.h"
#include "serve/stream.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::serve {

struct ServiceOptions {
  GateLimits limits;
  SamplingParams sampling_defaults;  // generation_config.json, where a request is silent
  std::vector<int32_t> eos_ids;      // end a choice unless ignore_eos
  text::Specials prompt_specials = text::Specials::kPlain;  // in the text of a completion's prompt
  StreamLimits stream;
  std::string fingerprint = "tandem";  // system_fingerprint: names the build and the model
  uint64_t seed = 0;  // of everything random here: seeds that requests don't give, cache salts
  size_t preparing_max = 256;  // bodies with the workers at once; over it: 429
  // Prompt and output tokens that one API key may have in flight, reserved at admission.
  int64_t tenant_tokens_max = int64_t{1} << 26;
  Duration request_deadline = std::chrono::minutes(30);
  HealthLimits health;
  std::function<int64_t()> unix_seconds;  // for "created"; the system clock if empty
};

class Service {
 public:
  // Sets the link's on_events. `chat_template` may be null: the model has none.
  Service(ServiceOptions options, engine::EngineInfo info, const text::Tokenizer& tokenizer,
          const text::ChatTemplate* chat_template, engine::Link& link, Executors executors,
          const Clock& clock);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // For the public and for the admin listener.
  [[nodiscard]] std::vector<Route> routes();
  [[nodiscard]] std::vector<Route> admin_routes();
  // Shown by /metrics from now on; the counters must live as long as this object serves.
  void show_http_counters(std::string listener, const HttpCounters& counters);

  void on_engine_events();  // drains the link; called by what on_events posted

  // From now on new requests get 503 and /ready says so; what runs, runs on.
  void begin_drain() { draining_ = true; }
  // No request in preparation, with the engine, or waiting for its last event.
  [[nodiscard]] bool idle() const { return pending_.empty() && slots_.empty(); }
  // The drain's deadline: ends every request with a retryable error.
  void end_all();

  [[nodiscard]] const Metrics& metrics() const { return metrics_; }

 private:
  struct Active;
  struct Slot {
    std::shared_ptr<Active> active;
    size_t choice = 0;
  };
  // Runs on a worker with the ticket and the body.
  using Preparation = std::function<void(uint64_t ticket, const std::string& body)>;
  using PlainAnswerer = Result<PlainAnswer> (*)(const PrepareContext&, const std::string&);

  void generate(Endpoint endpoint, std::shared_ptr<Exchange> exchange);
  void answer_plainly(PlainAnswerer answerer, std::shared_ptr<Exchange> exchange);
  [[nodiscard]] Result<void> admit(const Exchange& exchange) const;
  void start(std::shared_ptr<Exchange> exchange, Preparation work);
  // Null where the client has gone or the request was ended meanwhile.
  std::shared_ptr<Exchange> take_pending(uint64_t ticket);
  void prepared(uint64_t ticket, Result<PreparedGeneration> result);
  void answered(uint64_t ticket, Result<PlainAnswer> result);

  // The tokens that a request reserves of its tenant's budget, if it and the queue have room.
  [[nodiscard]] Result<int64_t> reserve(uint64_t tenant, const PreparedGeneration& prepared) const;
  void submit(std::shared_ptr<Exchange> exchange, PreparedGeneration prepared, int64_t charge);
  [[nodiscard]] engine::Submit make_submit(uint64_t tenant, const PreparedGeneration& prepared,
                                           size_t choice, TimePoint now);
  void close_slot(std::unordered_map<uint64_t, Slot>::iterator slot);
  void refuse(Exchange& exchange, const Error& error);

  [[nodiscard]] std::string model_json() const;
  void live(Exchange& exchange) const;
  void ready(Exchange& exchange);

  ServiceOptions options_;
  engine::EngineInfo info_;
  PrepareContext context_;
  engine::Link& link_;
  Executors executors_;
  const Clock& clock_;
  Rng rng_;
  uint64_t salt_key_ = 0;
  int64_t started_unix_ = 0;
  Metrics metrics_;
  GenerationHost host_;
  std::vector<NamedHttpCounters> http_counters_;

  bool draining_ = false;
  uint64_t next_id_ = 1;                                             // of requests to the engine
  uint64_t next_ticket_ = 1;                                         // of bodies with the workers
  std::unordered_map<uint64_t, std::shared_ptr<Exchange>> pending_;  // by ticket
  std::unordered_map<uint64_t, Slot> slots_;                         // by request id
  std::unordered_map<uint64_t, int64_t> tenant_tokens_;
  std::vector<engine::TokenEvent> events_;        // scratch of on_engine_events
  std::vector<std::shared_ptr<Active>> touched_;  // likewise
  Health health_;
};

}  // namespace tandem::serve
