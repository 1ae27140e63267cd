// SPDX-License-Identifier: Apache-2.0
// What the tests of the handlers stand on: a Service with a tiny tokenizer, a stand-in engine, a
// clock that only moves when told, and exchanges whose sink records. Everything runs in the test's
// thread; run() takes turns between the I/O queue and the engine until nothing is left.
#pragma once

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "engine/api.h"
#include "serve/fake_engine.h"
#include "serve/service.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::serve {

// What the HTTP side would have put on the wire.
struct Recorded {
  int status = 0;
  std::string type, body;
  std::vector<std::pair<std::string, std::string>> headers;
  bool streamed = false, ended = false, cut = false;
  size_t unsent_bytes = 0;  // what the sink reports
  int sends = 0;

  [[nodiscard]] nlohmann::json parsed() const { return nlohmann::json::parse(body); }
  [[nodiscard]] std::string param() const;  // error.param, or ""
  // The JSON events of a stream, without [DONE].
  [[nodiscard]] std::vector<nlohmann::json> events() const;
  [[nodiscard]] bool done() const;  // the stream ends with [DONE]
  // The text of a choice, from all events or from the whole answer.
  [[nodiscard]] std::string text(int choice = 0) const;
  [[nodiscard]] std::string finish_reason(int choice = 0) const;
};

struct Call {
  std::weak_ptr<Exchange> exchange;
  std::shared_ptr<Recorded> answer;
  [[nodiscard]] const Recorded* operator->() const { return answer.get(); }
  void client_gone() const;
};

struct RigOptions {
  ServiceOptions service;
  FakeEngineOptions engine;  // default: the bytes of "Hello, world. " without end
  size_t link_submits_max = 1024;
  int32_t context_tokens_max = 512;
  int64_t kv_tokens_max = 4096;
  int32_t queue_requests_max = 256;
  bool work_queue_full = false;
  bool engine_runs = true;    // else the test emits the events
  bool chat_template = true;  // without one a rig starts faster: no helper process
};

class ServiceRig {
 public:
  explicit ServiceRig(RigOptions options = {});

  [[nodiscard]] const text::Tokenizer& tokenizer() const { return tokenizer_; }
  [[nodiscard]] Service& service() { return *service_; }
  [[nodiscard]] engine::Link& link() { return link_; }
  ManualClock& clock() { return clock_; }

  // Hands a request to its handler; nothing has run yet.
  Call send(std::string_view method, std::string_view path, std::string body,
            std::string content_type = "application/json", uint64_t tenant = 0);
  // send(), then run().
  Call post(std::string_view path, const nlohmann::json& body);
  Call post_raw(std::string_view path, std::string body);
  Call get(std::string_view path);

  void run();          // until nothing is left to do
  void run_io();       // only what is posted
  bool step_engine();  // one turn of the engine
  void advance(Duration by) { clock_.advance(by); }

  // Ids of the tiny tokenizer: one per byte.
  [[nodiscard]] static std::vector<int32_t> ids(std::string_view bytes);

  // A plain request that must always work.
  [[nodiscard]] bool still_serves();

  static constexpr int32_t kEndOfText = 256;
  static constexpr int32_t kTurnEnd = 258;  // <|im_end|>, the end of sequence
  static constexpr int32_t kVocab = 300;    // rows of the embedding: more than the tokenizer has

 private:
  ManualClock clock_;
  text::Tokenizer tokenizer_;
  std::optional<text::ChatTemplate> template_;
  engine::Link link_;
  bool engine_runs_;
  std::deque<std::function<void()>> io_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Service> service_;
  std::vector<Route> routes_;
  uint64_t next_request_ = 1;
};

inline constexpr std::string_view kChat = "/v1/chat/completions";
inline constexpr std::string_view kCompletions = "/v1/completions";

}  // namespace tandem::serve
