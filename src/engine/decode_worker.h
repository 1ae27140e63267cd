// SPDX-License-Identifier: Apache-2.0
// DecodeWorker: reserves pages for a request, has its prompt's KV sent there, believes it only when
// count, epoch and digest are right, then decodes it in the running batch. SplitEngine owns it; one
// thread steps it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/coordinator.h"
#include "engine/handoff.h"
#include "engine/incoming.h"
#include "engine/worker_core.h"

namespace tandem::engine {

struct DecodeSettings {
  WorkerSettings worker;
  IncomingSettings incoming;
  int32_t handoff_attempts_max = 2;  // then an honest error
  // From the order to its end message; includes the prefiller's queue. Then it is cancelled and
  // tried again.
  Duration handoff_wait_max = std::chrono::minutes(10);
};

struct HandoffStats {
  int64_t asked = 0, joined = 0, rejected = 0;
  int64_t stale_messages = 0;  // of an unknown or older (id, epoch): ignored
  Duration joined_after{};     // sum over joined: last chunk computed -> joined
};

class DecodeWorker {
 public:
  struct Peers {  // all must outlive the worker
    transfer::Transport& transport;
    Coordinator& coordinator;
    HandoffQueues& queues;
    const Clock& clock;
  };
  static Result<std::unique_ptr<DecodeWorker>> create(const DecodeSettings& settings,
                                                      Compute compute, Peers peers);

  [[nodiscard]] const KvExport& kv_export() const { return export_; }

  // A request of the coordinator's book. Ends it there at once if it can never run.
  void submit(SubmitPtr request);
  void cancel(RequestId id);  // in whatever state
  bool step(TimePoint now);   // false: there was nothing to do

  [[nodiscard]] const WorkerCore& core() const { return *core_; }
  [[nodiscard]] EngineStatus::Worker status() const { return core_->status(); }
  [[nodiscard]] const HandoffStats& stats() const { return stats_; }
  [[nodiscard]] const transfer::Arrivals& arrivals() const { return incoming_.arrivals(); }
  [[nodiscard]] bool idle() const { return requests_.empty() && outbox_.empty(); }
  void check_invariants() const;  // for tests

 private:
  enum class Phase : uint8_t {
    kWaiting,    // for pages
    kAsked,      // the prefiller has, or will get, the order
    kVerifying,  // its end message is here, parts are checked
    kRunning,    // decodes
    kAbandoned,  // ended; the end message is still due, until then the pages are quarantined
  };
  struct Request {
    SubmitPtr submit;
    Phase phase = Phase::kWaiting;
    transfer::HandoffKey key;
    int32_t first_page = 0;
    int32_t attempts = 0;
    TimePoint wait_until{};
    TimePoint last_chunk_end{};
    int32_t first_token = 0;
    bool cancel_sent = false;
  };

  DecodeWorker(const DecodeSettings& settings, std::unique_ptr<WorkerCore> core, KvExport exported,
               Peers peers);
  void ask(RequestId id, Request& request, TimePoint now);
  void take_ends(TimePoint now);
  void handle_end(const HandoffEnd& end, TimePoint now);
  bool look_at_handoffs(TimePoint now);
  void join(RequestId id, Request& request);
  void reject(RequestId id, Request& request, std::string_view why, TimePoint now);
  // The request is over here; its pages go back now, or when the end message comes.
  void abandon(RequestId id, Request& request);
  void settle(RequestId id, Request& request);  // no transfer of its key is open any more
  void send_cancel(RequestId id, Request& request);
  void decode(const sched::Plan& plan);
  void flush_outbox();

  DecodeSettings settings_;
  std::unique_ptr<WorkerCore> core_;
  Peers peers_;
  KvExport export_;
  IncomingSet incoming_;
  std::unordered_map<RequestId, Request> requests_;
  std::vector<RequestId> handoffs_;  // in phase kAsked or kVerifying, oldest first
  std::deque<PrefillMessage> outbox_;
  std::vector<HandoffEnd> ends_;
  std::vector<TokenEvent> events_;
  uint64_t next_handoff_ = 1;
  HandoffStats stats_;
};

}  // namespace tandem::engine
