// SPDX-License-Identifier: Apache-2.0
// One request with the engine: its choices from token events to text, and the answer, whole or
// streamed. Owned by Service, lives on the I/O thread. Events of one batch are collected first and
// then flushed, so that tokens which arrive together leave in one write.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "engine/api.h"
#include "serve/exchange.h"
#include "serve/metrics.h"
#include "serve/openai_answer.h"
#include "serve/openai_logprobs.h"
#include "serve/openai_prepare.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace tandem::serve {

struct StreamLimits {
  // Bytes of a stream that its client has not taken: over the first for the whole grace, or over
  // the second at all, its request is cancelled and the connection cut.
  size_t unsent_bytes_slow = size_t{256} << 10;
  size_t unsent_bytes_max = size_t{2} << 20;
  Duration slow_grace = std::chrono::seconds(10);
};

// What all generations share; outlives them.
struct GenerationHost {
  const text::Tokenizer* tokenizer = nullptr;
  engine::Link* link = nullptr;
  Metrics* metrics = nullptr;
  StreamLimits limits;
};

class Generation {
 public:
  // `ids` are those of the choices, prompt after prompt; all are submitted by the caller.
  Generation(const GenerationHost& host, std::shared_ptr<Exchange> exchange,
             PreparedGeneration prepared, AnswerHead head, std::vector<RequestId> ids,
             TimePoint submitted);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  void on_event(size_t choice, engine::TokenEvent&& event, TimePoint now);
  // Sends what the events since the last flush made. Returns at once where there is nothing.
  void flush(TimePoint now);

  void client_gone(TimePoint now);
  // Ends the request with an error: a status before the first byte, an error event after it.
  void fail(const Error& error, TimePoint now);

  [[nodiscard]] bool ended() const { return ended_; }

 private:
  struct Choice {
    RequestId id;
    int32_t index = 0;
    size_t prompt_idx = 0;
    text::Detokenizer detokenizer;
    text::StopMatcher stops;
    std::string fresh;                // text not sent yet; all of it where the answer is whole
    std::vector<ScoredToken> scored;  // the same of logprobs
    int64_t characters = 0;           // of the text so far, with what stop strings hold back
    int64_t tokens_since_flush = 0;
    TimePoint last_token{};
    engine::FinishReason finish = engine::FinishReason::kNone;  // for the client
    bool timed = false;   // its first token is out: the next ones have a time between
    bool begun = false;   // its first event came
    bool opened = false;  // its first chunk is out
    bool closed = false;  // its last chunk is out
  };

  void on_first_event(Choice& choice, engine::TokenEvent& event, TimePoint now);
  void add_echo(Choice& choice, engine::TokenEvent& event);
  void add_token(Choice& choice, engine::TokenEvent& event);
  void finish_choice(Choice& choice, engine::FinishReason reason);
  void flush_choice(Choice& choice, std::string& out);
  void send(std::string bytes);
  void observe_times(Choice& choice, TimePoint now);
  void answer_whole(TimePoint now);
  void finish_stream(std::string& out, TimePoint now);
  void check_slow_client(TimePoint now);
  void end(Outcome outcome, TimePoint now);
  [[nodiscard]] std::string logprobs_json(const Choice& choice) const;
  [[nodiscard]] bool scores() const { return request_.sampling.logprobs >= 0; }

  const GenerationHost& host_;
  std::shared_ptr<Exchange> exchange_;
  GenerationRequest request_;
  std::vector<PreparedPrompt> prompts_;  // ids only where they are echoed
  PrepareTimes times_;
  TimePoint received_, submitted_;
  engine::EngineTimings engine_times_{};
  AnswerHead head_;
  ChunkWriter chunks_;
  Usage usage_;
  std::vector<Choice> choices_;
  std::string piece_;  // scratch
  size_t open_choices_ = 0;
  bool first_token_out_ = false;
  bool streaming_ = false;
  bool ended_ = false;
  TimePoint slow_since_ = TimePoint::max();
};

}  // namespace tandem::serve
