// SPDX-License-Identifier: Apache-2.0
// WholeEngine: one worker that prefills and decodes in the same batches, without a handoff, behind
// the same Link as SplitEngine. `tandem serve --whole` and the differential test use it: both give
// the same answers. One thread steps it.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "engine/api.h"
#include "engine/coordinator.h"
#include "engine/split_engine.h"
#include "engine/worker_core.h"

namespace tandem::engine {

struct WholeSettings {
  EngineLimits limits;
  WorkerSettings worker;
};

class WholeEngine {
 public:
  struct Parts {
    Compute compute;
    Link& link;          // outlives the engine
    const Clock& clock;  // outlives the engine; for timings only
  };
  static Result<std::unique_ptr<WholeEngine>> create(const WholeSettings& settings, Parts parts);

  [[nodiscard]] const EngineInfo& info() const { return coordinator_.info(); }
  bool step(TimePoint now);  // false: there was nothing to do
  void wait(Duration at_most) { link_.wait_for_work(at_most); }
  void wake() { link_.wake(); }
  void drain() { coordinator_.drain(); }
  [[nodiscard]] bool idle() const { return coordinator_.idle(); }

  [[nodiscard]] const WorkerCore& core() const { return *core_; }
  void check_invariants() const;  // for tests

 private:
  struct Request {
    SubmitPtr submit;
    PromptProgress progress;
  };
  WholeEngine(const WholeSettings& settings, EngineInfo info, std::unique_ptr<WorkerCore> core,
              Link& link, const Clock& clock);
  void take_work();
  void run_plan(TimePoint now);
  void begin_rows(const sched::Plan& plan);
  // True: the request has ended.
  bool apply(const sched::PlanRow& row, Request& request, RowResult& result);
  FinishReason give_first(const sched::PlanRow& row, Request& request, RowResult& result);
  void publish(TimePoint now);

  const Duration publish_every_;
  Link& link_;
  const Clock& clock_;
  Coordinator coordinator_;
  std::unique_ptr<WorkerCore> core_;
  std::unordered_map<RequestId, Request> requests_;
  std::vector<SubmitPtr> submits_;  // kept for their capacity
  std::vector<RequestId> cancels_;
  std::vector<TokenEvent> events_;
  int64_t steps_ = 0;
  TimePoint published_{};
  bool ever_published_ = false;
};

}  // namespace tandem::engine
