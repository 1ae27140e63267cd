// SPDX-License-Identifier: Apache-2.0
// PrefillWorker: computes prompts in chunks, pushes their KV layer by layer to a decoder while it
// computes, draws the first token and gives it out at once. SplitEngine owns it; one thread steps
// it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "engine/coordinator.h"
#include "engine/handoff.h"
#include "engine/outgoing.h"
#include "engine/worker_core.h"

namespace tandem::engine {

struct PrefillSettings {
  WorkerSettings worker;
  Duration transfer_wait_max = std::chrono::seconds(30);  // of one push, until it is terminal
};

class PrefillWorker {
 public:
  struct Peers {  // all must outlive the worker
    transfer::Transport& transport;
    Coordinator& coordinator;
    HandoffQueues& queues;
    const Clock& clock;  // for timings only; decisions take step()'s `now`
  };
  static Result<std::unique_ptr<PrefillWorker>> create(const PrefillSettings& settings,
                                                       Compute compute, Peers peers);

  // Before the first step. Refuses a decoder whose KV is laid out otherwise, by name.
  Result<void> pair(KvExport decoder);

  bool step(TimePoint now);  // false: there was nothing to do

  [[nodiscard]] const WorkerCore& core() const { return *core_; }
  [[nodiscard]] EngineStatus::Worker status() const { return core_->status(); }
  [[nodiscard]] int64_t bytes_pushed() const { return bytes_pushed_; }
  [[nodiscard]] bool idle() const { return prompts_.empty() && orders_.empty() && ends_.empty(); }
  void check_invariants() const;  // for tests

 private:
  // An order that the scheduler knows, until its end message is on its way.
  struct Prompt {
    SubmitPtr submit;
    std::optional<HandoffTarget> target;  // until outgoing is made
    std::optional<transfer::HandoffKey> key;
    std::unique_ptr<Outgoing> outgoing;  // from the first chunk on, where there is a target
    PromptProgress progress;
    bool computed = false;                  // first token drawn and given out
    std::optional<HandoffOutcome> outcome;  // why it ends without being complete
    int32_t first_token = 0;
  };

  PrefillWorker(const PrefillSettings& settings, std::unique_ptr<WorkerCore> core, KvExport source,
                Peers peers);
  void take_messages();
  void start_orders();
  void cancel(const PrefillCancel& order);
  void drop(Prompt& prompt, HandoffOutcome outcome);
  void run_plan(TimePoint now);
  void begin_rows(const sched::Plan& plan);
  void apply(const sched::PlanRow& row, RowResult& result);
  void draw_first(const sched::PlanRow& row, Prompt& prompt, RowResult& result);
  void on_layer(int32_t layer, std::span<const Piece> pieces, TimePoint now);
  void push(Prompt& prompt, TimePoint now);
  bool move_bytes(TimePoint now);
  void close_ended();
  bool close(RequestId id, Prompt& prompt);
  void end_message(RequestId id, transfer::HandoffKey key, HandoffOutcome outcome);
  void flush_ends();

  PrefillSettings settings_;
  std::unique_ptr<WorkerCore> core_;
  Peers peers_;
  KvExport source_, destination_;
  std::unordered_map<RequestId, Prompt> prompts_;
  std::deque<PrefillOrder> orders_;  // taken, not yet known to the scheduler
  std::deque<HandoffEnd> ends_;      // the queue to the decoder was full
  std::vector<PrefillMessage> messages_;
  std::vector<transfer::Completion> completions_;
  std::map<transfer::HandoffKey, RequestId> sending_;  // whose transfers may be open
  int64_t bytes_pushed_ = 0;
};

}  // namespace tandem::engine
