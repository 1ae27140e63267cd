// SPDX-License-Identifier: Apache-2.0
// What a front end sees of an engine: ids, tokens and bounded queues. serve/ and app/ call the
// front side, an engine's thread the back side; neither ever waits for the other. A test or a bench
// that stands in for the engine uses the same back side.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"
#include "core/result.h"
#include "core/sampling.h"

namespace tandem::engine {

// Fixed facts of the engine, for the admission gate.
struct EngineInfo {
  std::string model_name;
  int32_t vocab_size = 0;  // rows of the embedding: every id of a request must be below it
  int32_t tokenizer_vocab_size = 0;  // ids that can be sampled; the rest are masked
  int32_t context_tokens_max = 0;    // prompt + output
  int64_t kv_tokens_max = 0;  // what an empty pool can hold for one request, on the smaller side
  int32_t queue_requests_max = 0;  // waiting + running over which submit is refused
};

struct Submit {
  RequestId id;
  std::vector<int32_t> prompt;  // >= 1 token, checked by the front end
  SamplingParams sampling;
  int32_t max_tokens = 1;         // 0 is legal only with prompt_logprobs >= 0
  std::vector<int32_t> stop_ids;  // eos ids included by the front end unless ignore_eos
  int32_t prompt_logprobs = -1;   // -1 none; k: of each prompt token and its k best alternatives
  uint64_t cache_salt = 0;        // prefix pages are shared only between equal salts
  uint64_t tenant = 0;            // fairness key
  TimePoint deadline = TimePoint::max();
  TimePoint submitted{};
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError };

// Where the time to the first token went inside the engine. The parts add up to first token -
// submitted.
struct EngineTimings {
  Duration queue{};    // submitted -> first chunk starts
  Duration prefill{};  // first chunk starts -> last chunk ends
  Duration sample{};   // last chunk ends -> first token emitted
  Duration handoff{};  // last chunk ends -> joined the decoder's batch: not part of the first
                       // token's time, and 0 in its event, which goes out before the join;
                       // EngineStatus::handoff_time sums it up
};

// One step's news of one request. Exactly one event per request has finish != kNone, and it is the
// last.
struct TokenEvent {
  RequestId id;
  bool has_token = false;
  SampledToken token;  // where finish is kStop by a stop id, that id is here, and is not text
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;                 // with kError
  int32_t prompt_cached_tokens = 0;           // first event only
  std::optional<EngineTimings> timings;       // first event only
  std::vector<SampledToken> prompt_logprobs;  // first event only; entry i is of prompt token i+1
};

// A snapshot for /ready and /metrics. Counters only grow.
struct EngineStatus {
  int64_t steps = 0;
  TimePoint last_step{};  // loops turn
  bool accepting = true;
  struct Worker {
    std::string role;  // "prefill", "decode" or "whole"
    int32_t waiting = 0, running = 0;
    int32_t pages_total = 0, pages_free = 0, pages_cached = 0, pages_used = 0,
            pages_quarantined = 0;
    int64_t tokens_computed = 0, prefix_hit_tokens = 0, prefix_asked_tokens = 0;
    int64_t batch_rows_last = 0;
    int64_t preemptions = 0;
  };
  std::vector<Worker> workers;
  int64_t handoffs = 0, handoff_bytes = 0, handoff_rejects = 0;
  Duration handoff_time{};  // sum over `handoffs`: last chunk ends -> joined the decoder's batch
};

// The two bounded queues between a front end and an engine. Thread safe; nobody blocks but
// wait_for_work.
class Link {
 public:
  explicit Link(size_t queued_submits_max) : queued_submits_max_(queued_submits_max) {}

  // --- front side
  // False: the queue is full now (429); the request is untouched.
  [[nodiscard]] bool try_submit(Submit& request);
  void cancel(RequestId id);  // idempotent; the request still gets its one last event
  void take_events(std::vector<TokenEvent>& out);  // appends; empties the queue
  [[nodiscard]] EngineStatus status() const;
  // Called from the engine's thread whenever the event queue turns non-empty. Set before the engine
  // starts.
  void on_events(std::function<void()> notify) { notify_ = std::move(notify); }

  // --- back side
  struct Work {
    std::vector<Submit> submits;
    std::vector<RequestId> cancels;
    [[nodiscard]] bool empty() const { return submits.empty() && cancels.empty(); }
  };
  void take_work(Work& out);  // appends; empties the queue
  void wait_for_work(Duration at_most);
  void wake();  // ends wait_for_work early
  void emit(std::vector<TokenEvent>&& events);
  void publish(EngineStatus status);

 private:
  const size_t queued_submits_max_;
  std::function<void()> notify_;
  mutable std::mutex mutex_;
  std::condition_variable work_ready_;
  Work work_;
  std::vector<TokenEvent> events_;
  EngineStatus status_;
  bool woken_ = false;
};

}  // namespace tandem::engine
