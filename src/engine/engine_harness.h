// SPDX-License-Identifier: Apache-2.0
// What the engine tests share: a client that holds every event against the promises of engine/api.h
// and against the fake model, and engines of small sizes around the fake model.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "engine/fake_compute.h"
#include "engine/split_engine.h"
#include "engine/whole_engine.h"
#include "transfer/faulty.h"

namespace tandem::engine {

// One request as the client sees it.
struct Answer {
  Submit request;
  std::vector<SampledToken> tokens;
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;
  int32_t cached_tokens = 0;
  std::optional<EngineTimings> timings;
  std::vector<SampledToken> prompt_logprobs;
  int events = 0;

  [[nodiscard]] bool ended() const { return finish != FinishReason::kNone; }
  [[nodiscard]] std::vector<int32_t> ids() const;
};

// The front side of a Link. Checks each event as it comes: no event after the last, `first event
// only` fields on the first only, and where `fake` is set, each token the fake model's.
class Client {
 public:
  explicit Client(Link& link, std::optional<FakeSettings> fake = std::nullopt)
      : link_(link), fake_(fake) {}

  // False: the link is full; nothing is remembered.
  bool submit(Submit request);
  RequestId submit_prompt(std::vector<int32_t> prompt, int32_t max_tokens, uint64_t seed = 0);
  void cancel(RequestId id) { link_.cancel(id); }
  void collect();
  [[nodiscard]] const Answer& answer(RequestId id) const { return answers_.at(id); }
  [[nodiscard]] const std::map<RequestId, Answer>& answers() const { return answers_; }
  [[nodiscard]] size_t open() const { return answers_.size() - ended_; }
  [[nodiscard]] RequestId new_id() { return {next_id_++}; }
  // Wrong tokens are failures unless a test wants to count them.
  void count_wrong_tokens() { count_wrong_ = true; }
  [[nodiscard]] int wrong_tokens() const { return wrong_; }

 private:
  void check(const TokenEvent& event, Answer& answer);
  Link& link_;
  std::optional<FakeSettings> fake_;
  std::map<RequestId, Answer> answers_;
  std::vector<TokenEvent> events_;
  size_t ended_ = 0;
  uint64_t next_id_ = 1;
  bool count_wrong_ = false;
  int wrong_ = 0;
};

struct FakeRig {
  FakeSettings fake;
  SplitSettings split;
  WholeSettings whole;
  size_t submits_max = 4096;
  std::optional<transfer::FaultPlan> faults;
  uint64_t fault_seed = 0;
  transfer::LoopbackLimits loopback;
};
// Pages of 4 tokens, 64 pages a side, chunks of 16 rows, contexts up to 128 tokens.
[[nodiscard]] FakeRig small_rig();

// A split engine, its link, clock and client, stepped by one thread.
struct SplitRun {
  explicit SplitRun(const FakeRig& rig);
  void step();  // one millisecond later
  // Steps until every request has ended and no quarantine is left; fails after `steps_max`.
  void finish(int steps_max = 20000);
  void expect_all_pages_back() const;

  ManualClock clock;
  Link link;
  transfer::FaultyTransport* faulty = nullptr;  // where the rig has faults
  std::unique_ptr<SplitEngine> engine;
  Client client;
};

struct WholeRun {
  explicit WholeRun(const FakeRig& rig);
  void step();
  void finish(int steps_max = 20000);
  void expect_all_pages_back() const;

  ManualClock clock;
  Link link;
  std::unique_ptr<WholeEngine> engine;
  Client client;
};

[[nodiscard]] std::vector<int32_t> random_prompt(Rng& rng, int64_t tokens, int32_t vocab);

}  // namespace tandem::engine
