// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "app/cpu_team.h"
#include "app/worker_pool.h"

namespace tandem::app {
namespace {

TEST(CpuTeam, EveryIndexOnceForAllSizesAndTeams) {
  for (const int threads : {1, 2, 3, 8}) {
    CpuTeam team(threads);
    EXPECT_EQ(team.threads(), threads);
    for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {0, 1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        team.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (const auto& hit : hits) ASSERT_EQ(hit, 1);
      }
    }
  }
}

TEST(CpuTeam, ManyShortLoopsInARow) {
  CpuTeam team(4);
  int64_t total = 0;
  for (int round = 0; round < 20000; ++round) {
    std::atomic<int64_t> sum{0};
    team.parallel_for(8, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    total += sum;
  }
  EXPECT_EQ(total, 160000);
}

TEST(WorkerPool, RunsAllThatItTookAndRefusesWhatIsOver) {
  std::atomic<int> ran{0};
  std::atomic<bool> open{false};
  int taken = 0;
  {
    WorkerPool pool(2, 10);
    for (int i = 0; i < 100; ++i) {
      taken += pool.try_post([&] {
        while (!open) std::this_thread::yield();
        ++ran;
      });
    }
    EXPECT_GE(taken, 10);
    EXPECT_LE(taken, 12);  // ten in the queue, at most two taken by threads
    open = true;
  }
  EXPECT_EQ(ran, taken);
}

}  // namespace
}  // namespace tandem::app
