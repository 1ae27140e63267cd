// SPDX-License-Identifier: Apache-2.0
// A model stand-in that costs nothing: it answers every request with a fixed sequence of tokens
// over the same queues as a real engine. For measuring the front end alone (tandem serve
// --stand-in, openai_bench.cpp) and for its tests. It computes nothing and says so in its role.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/clock.h"
#include "engine/api.h"

namespace tandem::serve {

struct FakeEngineOptions {
  std::vector<int32_t> tokens;  // the answer, repeated without end; >= 1
  double tokens_per_s = 0;      // of each request; 0: one token a step
  size_t running_max = 4096;    // the rest waits
  size_t waiting_max = 65536;   // over it a request ends with kResourceExhausted
};

class FakeEngine {
 public:
  FakeEngine(FakeEngineOptions options, engine::Link& link);

  // One turn, on the engine's thread: takes submits and cancels, gives at most one token to each
  // running request. True: more can be done at once; else wait_for_work(idle_wait(now)).
  bool step(TimePoint now);
  [[nodiscard]] Duration idle_wait(TimePoint now) const;

 private:
  struct Running {
    engine::Submit request;
    TimePoint started{};
    int32_t emitted = 0;
  };

  void take_requests(TimePoint now);
  [[nodiscard]] bool is_due(const Running& running, TimePoint now) const;
  // True: that was its last event.
  bool emit_next(Running& running, TimePoint now);
  void emit_end(RequestId id, engine::FinishReason finish);
  void publish(TimePoint now);

  const FakeEngineOptions options_;
  engine::Link& link_;
  std::vector<Running> running_;
  std::vector<engine::Submit> waiting_;
  std::unordered_set<uint64_t> cancelled_;
  engine::Link::Work work_;
  std::vector<engine::TokenEvent> events_;
  int64_t steps_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace tandem::serve
