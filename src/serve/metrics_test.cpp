// SPDX-License-Identifier: Apache-2.0
#include "serve/metrics.h"

#include <gtest/gtest.h>

#include <numeric>

#include "serve/admin.h"
#include "serve/service_test_rig.h"

namespace tandem::serve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Metrics, AHistogramsBoundsAreInclusive) {
  Histogram histogram;
  histogram.observe(milliseconds(1));
  histogram.observe(milliseconds(1) + Duration(1), 3);
  histogram.observe(seconds(1000));
  EXPECT_EQ(histogram.counts()[3], 1);
  EXPECT_EQ(histogram.counts()[4], 3);
  EXPECT_EQ(histogram.counts().back(), 1);
  EXPECT_EQ(histogram.count(), 5);
  EXPECT_EQ(histogram.sum(), seconds(1000) + milliseconds(4) + Duration(3));
}

TEST(Metrics, TheTextNamesEveryFamilyOnce) {
  Metrics metrics;
  metrics.requests = 3;
  metrics.end(Outcome::kOk);
  engine::EngineStatus status;
  status.workers.push_back({.role = "prefill", .pages_used = 4});
  status.workers.push_back({.role = "decode", .pages_used = 5});
  HttpCounters http;
  http.responses[4] = 2;
  const std::string text = metrics_text(metrics, status, {{"public", &http}, {"admin", &http}});
  for (const char* line :
       {"tandem_requests_total 3\n", "tandem_requests_ended_total{outcome=\"ok\"} 1\n",
        "tandem_pages{role=\"decode\",worker=\"1\",state=\"used\"} 5\n",
        "tandem_first_token_part_seconds_count{part=\"prefill\"} 0\n",
        "tandem_http_responses_total{listener=\"public\",class=\"4xx\"} 2\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  const std::string type = "# TYPE tandem_pages gauge";
  EXPECT_EQ(text.find(type), text.rfind(type));
}

// The stand-in takes its requests one turn late and the clock moves at every turn, so every part
// has a length.
TEST(Metrics, ThePartsOfTheFirstTokensTimeAddUp) {
  ServiceRig rig({.engine_runs = false});
  std::vector<Call> calls;
  for (int i = 0; i < 5; ++i) {
    calls.push_back(rig.send("POST", kCompletions, R"({"prompt":"x","max_tokens":3})"));
    rig.advance(milliseconds(3));
    rig.run_io();
    rig.advance(milliseconds(7));
    bool more = true;
    while (more) {
      more = rig.step_engine();
      rig.advance(milliseconds(2));
      rig.run_io();
    }
    EXPECT_EQ(calls.back()->status, 200);
  }
  const Metrics& metrics = rig.service().metrics();
  EXPECT_EQ(metrics.first_token.count(), 5);
  Duration sum{};
  for (const Histogram& part : metrics.first_token_parts) {
    EXPECT_EQ(part.count(), 5);
    sum += part.sum();
  }
  EXPECT_EQ(sum, metrics.first_token.sum());
  EXPECT_EQ(metrics.first_token.sum(), 5 * milliseconds(12));
  EXPECT_EQ(metrics.inter_token.count(), 10);
  EXPECT_EQ(metrics.inter_token.sum(), 10 * milliseconds(2));
}

TEST(Health, LiveMeansThatTheLoopTurns) {
  Health health({.stall_after = seconds(5), .progress_after = seconds(60)});
  engine::EngineStatus status;
  const TimePoint begin{};
  status.last_step = begin;
  EXPECT_FALSE(health.why_not_live(status, begin + seconds(5)));
  EXPECT_TRUE(health.why_not_live(status, begin + seconds(6)));
}

TEST(Health, ReadyMeansProgress) {
  Health health({.stall_after = seconds(1000), .progress_after = seconds(60)});
  engine::EngineStatus status;
  status.workers.push_back({.role = "whole"});
  const TimePoint begin{};
  EXPECT_FALSE(health.why_not_ready(status, false, 0, begin));
  EXPECT_FALSE(health.why_not_ready(status, false, 0, begin + seconds(500)));
  health.work_began(begin + seconds(550));
  EXPECT_FALSE(health.why_not_ready(status, true, 0, begin + seconds(600)));
  EXPECT_TRUE(health.why_not_ready(status, true, 0, begin + seconds(611)));
  status.workers[0].tokens_computed = 1;  // a long prompt gets on
  EXPECT_FALSE(health.why_not_ready(status, true, 0, begin + seconds(612)));
  EXPECT_TRUE(health.why_not_ready(status, true, 0, begin + seconds(700)));
  status.accepting = false;
  EXPECT_TRUE(health.why_not_ready(status, true, 1, begin + seconds(701)));
}

}  // namespace
}  // namespace tandem::serve
