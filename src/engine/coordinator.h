// SPDX-License-Identifier: Apache-2.0
// The book of requests: where each one stands, and its way to the front end. Both workers of an
// engine write here, each from its own thread; the book makes sure that every request gets exactly
// one last event and none after it, whoever comes first.
//
//   queued -> prefill -> handoff -> decode -> done           the usual way
//   any    -> cancelling -> quarantined -> done              its pages wait for the transfer's end
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/api.h"

namespace tandem::engine {

using SubmitPtr = std::shared_ptr<const Submit>;

enum class RequestState : uint8_t {
  kQueued,       // waits for pages, or for the prefiller
  kPrefill,      // prompt chunks are computed
  kHandoff,      // first token is out; pages move or are verified
  kDecode,       // in the batch
  kCancelling,   // cancelled, its last event not yet out
  kQuarantined,  // ended for the client; a transfer may still touch its pages
};

// The token that ends the prompt, with what goes out once.
struct FirstToken {
  RequestId id;
  std::optional<SampledToken> token;  // absent where max_tokens is 0
  int32_t prompt_cached_tokens = 0;
  EngineTimings timings;
  std::vector<SampledToken> prompt_logprobs;
};

class Coordinator {
 public:
  // `link` must outlive the coordinator.
  Coordinator(EngineInfo info, Link& link) : info_(std::move(info)), link_(link) {}

  [[nodiscard]] const EngineInfo& info() const { return info_; }

  // Takes what the front end sent. Submits that can't be served end here with an error event; the
  // others are queued now and appended. Cancels of unknown requests (ended already) are dropped.
  void take_work(std::vector<SubmitPtr>& submits, std::vector<RequestId>& cancels);
  void drain();  // from now on every submit ends with kUnavailable

  // False: the request has ended, stop working for it.
  bool advance(RequestId id, RequestState state);
  // Emits the first event at once and says how the request goes on. A second call (the prompt was
  // computed anew) emits nothing; kError where it drew another token, and the request has ended.
  // Nothing: it has ended before.
  std::optional<FinishReason> first_token(FirstToken first);
  // One step's tokens, in one batch. Events of ended requests are dropped; those with a finish end
  // theirs.
  void emit(std::vector<TokenEvent>& events);
  // The last event without a token. False: it had ended before, nothing was emitted.
  bool end(RequestId id, FinishReason reason, std::optional<Error> error = std::nullopt);

  // While a transfer is open, an ended request stays in the book as kQuarantined.
  void transfer_opened(RequestId id);
  void transfer_closed(RequestId id);

  [[nodiscard]] std::optional<RequestState> state(RequestId id) const;  // nothing: done
  [[nodiscard]] bool idle() const;                                      // the book is empty
  [[nodiscard]] bool accepting() const;
  [[nodiscard]] size_t open_requests() const;  // without the quarantined

 private:
  struct Record {
    SubmitPtr submit;
    RequestState state = RequestState::kQueued;
    std::optional<int32_t> first_token;
    bool first_event_sent = false;
    bool transfer_open = false;
  };
  [[nodiscard]] std::optional<Error> refusal(const Submit& submit) const;
  void close(RequestId id, Record& record);  // after its last event

  const EngineInfo info_;
  Link& link_;
  mutable std::mutex mutex_;
  std::unordered_map<RequestId, Record> book_;
  size_t quarantined_ = 0;
  bool accepting_ = true;
  Link::Work work_;  // kept for its capacity
};

// How a request stands after `token` became its output number `outputs`.
[[nodiscard]] FinishReason finish_after(const Submit& submit, int32_t token, int32_t outputs);

}  // namespace tandem::engine
