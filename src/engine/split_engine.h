// SPDX-License-Identifier: Apache-2.0
// SplitEngine: one prefill worker and one decode worker behind a Link, joined only by the handoff
// protocol over a transport. app/ makes one for `tandem serve`; tests and the simulator step it.
//
// Either one thread calls step(), and every run is the same, or two threads call step_prefill() and
// step_decode(); nothing else of the engine but the wait and wake functions, drain() and idle() may
// be called meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "engine/api.h"
#include "engine/decode_worker.h"
#include "engine/doorbell.h"
#include "engine/prefill_worker.h"
#include "transfer/loopback.h"

namespace tandem::engine {

// What the front end is told and the gate holds to.
struct EngineLimits {
  std::string model_name;
  int32_t tokenizer_vocab_size = 0;
  int32_t queue_requests_max = 1024;
  Duration publish_every = std::chrono::milliseconds(5);  // EngineStatus snapshots
};

struct SplitSettings {
  EngineLimits limits;
  PrefillSettings prefill;
  DecodeSettings decode;
};

struct SplitTransports {
  std::unique_ptr<transfer::Transport> prefill, decode;
};
[[nodiscard]] SplitTransports make_loopback_transports(transfer::LoopbackLimits limits = {});

class SplitEngine {
 public:
  struct Parts {
    Compute prefill, decode;  // not the same buffers: two threads may use them
    SplitTransports transports;
    Link& link;          // outlives the engine
    const Clock& clock;  // outlives the engine
  };
  // Errors name the setting, or in what the two sides differ.
  static Result<std::unique_ptr<SplitEngine>> create(const SplitSettings& settings, Parts parts);

  [[nodiscard]] const EngineInfo& info() const { return coordinator_.info(); }

  // Everything once. False: there was nothing to do.
  bool step(TimePoint now);
  bool step_prefill(TimePoint now);
  bool step_decode(TimePoint now);  // also takes the front end's work and publishes the status

  void wait_prefill(Duration at_most) { prefill_bell_.wait(at_most); }
  void wait_decode(Duration at_most) { link_.wait_for_work(at_most); }
  void wake();  // both

  void drain() { coordinator_.drain(); }  // new requests end with kUnavailable
  [[nodiscard]] bool idle() const { return coordinator_.idle(); }  // also no quarantine is left

  // For tests and benches, between steps of all threads.
  [[nodiscard]] const PrefillWorker& prefill() const { return *prefill_; }
  [[nodiscard]] const DecodeWorker& decode() const { return *decode_; }
  [[nodiscard]] const Coordinator& coordinator() const { return coordinator_; }
  [[nodiscard]] HandoffQueues& queues() { return queues_; }
  void check_invariants() const;

 private:
  SplitEngine(const SplitSettings& settings, EngineInfo info, Parts& parts);
  void publish(TimePoint now);

  const Duration publish_every_;
  Link& link_;
  SplitTransports transports_;
  Coordinator coordinator_;
  HandoffQueues queues_;
  Doorbell prefill_bell_;
  std::unique_ptr<PrefillWorker> prefill_;
  std::unique_ptr<DecodeWorker> decode_;

  std::vector<SubmitPtr> submits_;  // kept for their capacity
  std::vector<RequestId> cancels_;
  int64_t steps_ = 0;
  TimePoint published_{};
  bool ever_published_ = false;

  std::mutex prefill_status_mutex_;
  EngineStatus::Worker prefill_status_;
  int64_t prefill_bytes_ = 0;
};

}  // namespace tandem::engine
