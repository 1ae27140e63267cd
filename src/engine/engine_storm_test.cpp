// SPDX-License-Identifier: Apache-2.0
// Storms: thousands of random requests, cancels, deadlines and faults against small pools, by seed.
// After every step the invariants hold; at the end every request has ended once, with right tokens
// or an honest error, and every page is back.
#include <gtest/gtest.h>

#include "core/rng.h"
#include "engine/engine_harness.h"

namespace tandem::engine {
namespace {

using transfer::Fault;

constexpr int32_t kVocab = 4096;

FakeRig random_rig(Rng& rng) {
  FakeRig rig = small_rig();
  const auto small = [&](WorkerSettings& worker) {
    worker.page_count = static_cast<int32_t>(rng.between(32, 80));
    worker.sched.sequences_max = static_cast<int32_t>(rng.between(1, 24));
    worker.sched.chunk_rows_max = static_cast<int32_t>(rng.between(4, 24));
    worker.sched.rows_max = worker.sched.sequences_max + static_cast<int32_t>(rng.between(4, 40));
    worker.sched.prefix_cache = rng.below(4) != 0;
    worker.logit_rows_max = static_cast<int32_t>(rng.between(1, 12));
  };
  small(rig.split.prefill.worker);
  small(rig.split.decode.worker);
  rig.split.decode.handoff_wait_max = std::chrono::milliseconds(rng.between(50, 2000));
  rig.split.decode.incoming.arrival_grace = std::chrono::milliseconds(rng.between(0, 50));
  rig.split.decode.incoming.verify_bytes_per_step = rng.below(2) == 0 ? 256 : 1 << 20;
  rig.split.prefill.transfer_wait_max = std::chrono::milliseconds(rng.between(20, 500));
  rig.split.limits.queue_requests_max = static_cast<int32_t>(rng.between(8, 200));
  rig.loopback = {.open_requests_max = static_cast<size_t>(rng.between(1, 64)),
                  .inbox_max = static_cast<size_t>(rng.between(1, 64)),
                  .bytes_per_step = static_cast<uint64_t>(rng.between(1, 20000))};
  transfer::FaultPlan plan;
  for (const auto fault : {Fault::kDelay, Fault::kLose, Fault::kLoseBytes, Fault::kCorrupt,
                           Fault::kWriteTwice, Fault::kRepeatCount, Fault::kFail, Fault::kBusy}) {
    if (rng.below(3) == 0) plan.with(fault, rng.uniform() * 0.3F);
  }
  rig.faults = plan;
  rig.fault_seed = rng.next_u64();
  return rig;
}

Submit random_request(Rng& rng, Client& client, TimePoint now,
                      const std::vector<std::vector<int32_t>>& prefixes) {
  Submit request{.id = client.new_id(), .max_tokens = static_cast<int32_t>(rng.between(1, 24))};
  request.prompt = random_prompt(rng, rng.between(1, 40), kVocab);
  if (rng.below(2) == 0) {
    const auto& prefix = prefixes[rng.below(prefixes.size())];
    request.prompt.insert(request.prompt.begin(), prefix.begin(), prefix.end());
  }
  request.sampling.seed = rng.below(3);
  request.cache_salt = rng.below(2);
  request.tenant = rng.below(3);
  request.submitted = now;
  if (rng.below(10) == 0) {
    request.deadline = now + std::chrono::milliseconds(rng.between(0, 200));
  }
  if (rng.below(12) == 0) {
    request.prompt_logprobs = static_cast<int32_t>(rng.below(3));
    request.max_tokens = static_cast<int32_t>(rng.below(4));
  }
  if (rng.below(50) == 0) request.prompt[0] = kVocab;  // refused
  return request;
}

void storm(uint64_t seed, int requests) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed, 0x57012);
  SplitRun run(random_rig(rng));
  std::vector<std::vector<int32_t>> prefixes;
  for (int i = 0; i < 3; ++i) prefixes.push_back(random_prompt(rng, rng.between(4, 40), kVocab));
  int submitted = 0;
  while (submitted < requests && !testing::Test::HasFailure()) {
    for (uint64_t burst = rng.below(4); burst > 0 && submitted < requests; --burst) {
      if (run.client.submit(random_request(rng, run.client, run.clock.now(), prefixes))) {
        ++submitted;
      }
    }
    if (rng.below(6) == 0) run.client.cancel({1 + rng.below(static_cast<uint64_t>(submitted) + 1)});
    switch (rng.below(8)) {  // the two workers need not keep the same pace
      case 0:
        run.clock.advance(std::chrono::milliseconds(rng.between(0, 30)));
        run.engine->step_decode(run.clock.now());
        break;
      case 1:
        run.engine->step_prefill(run.clock.now());
        break;
      default:
        run.step();
    }
  }
  run.finish();
  run.expect_all_pages_back();
  int by_reason[5] = {};
  for (const auto& [id, answer] : run.client.answers()) {
    ++by_reason[static_cast<size_t>(answer.finish)];
  }
  EXPECT_EQ(by_reason[0], 0);
  EXPECT_GT(by_reason[static_cast<size_t>(FinishReason::kLength)], 0);
}

TEST(EngineStorm, EveryRequestEndsOnceAndEveryPageReturns) {
  for (uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) storm(seed, 200);
}

}  // namespace
}  // namespace tandem::engine
