// SPDX-License-Identifier: Apache-2.0
// What a scheduler's step costs on the host: it stands between two steps of the device.
#include "bench/report.h"
#include "sched/scheduler.h"

namespace tandem::sched {
namespace {

constexpr int32_t kPageTokens = 64;
constexpr int32_t kRunning = 256;

struct Worker {
  explicit Worker(const Settings& settings, int32_t page_count)
      : pool({.page_count = page_count}),
        cache(pool, {.page_tokens = kPageTokens, .secret = 1}),
        scheduler(Scheduler::create(settings, pool, cache).value()) {}

  void add(int32_t prompt_tokens, int32_t max_tokens, uint64_t tenants = 1) {
    SequenceSpec spec{.id = RequestId{++id}, .max_tokens = max_tokens, .tenant = id % tenants};
    for (int32_t i = 0; i < prompt_tokens; ++i) {
      spec.prompt.push_back(static_cast<int32_t>(id) * 31 + i);
    }
    scheduler.add(std::move(spec)).value();
  }
  // As a worker would, with a model that costs nothing.
  void step() {
    const Plan& plan = scheduler.step(TimePoint{});
    for (const PlanRow& row : plan.rows) {
      scheduler.chunk_done(row.id);
      if (!row.samples) continue;
      if (row.position_begin + row.row_count < ends_at) {
        scheduler.token_sampled(row.id, 1);
      } else {
        scheduler.finish(row.id);
        ++finished;
      }
    }
  }

  kv::PagePool pool;
  kv::PrefixCache cache;
  Scheduler scheduler;
  uint64_t id = 0;
  int64_t finished = 0;
  int32_t ends_at = 1 << 30;
};

bench::Row us_per_step(std::string case_name, const bench::Timing& timing) {
  return {.name = "sched/step",
          .case_name = std::move(case_name),
          .value = timing.median_s * 1e6,
          .unit = "us",
          .min = timing.min_s * 1e6,
          .max = timing.max_s * 1e6,
          .repeats = timing.repeats};
}

void bench_decode(bench::Report& report, int32_t waiting) {
  constexpr int32_t kOutput = 4000;
  constexpr int32_t kPages = kRunning * (512 + kOutput) / kPageTokens + kRunning;
  Worker worker({.rows_max = 2048,
                 .sequences_max = kRunning + 8,
                 .waiting_max = 2048,
                 .tenant_waiting_max = 2048,
                 .context_tokens_max = 8192},
                kPages);
  for (int32_t i = 0; i < kRunning; ++i) worker.add(512, kOutput);
  while (worker.scheduler.stats().prompt_rows_left > 0) worker.step();
  // All the pool is taken: these are tried in vain in every step.
  for (int32_t i = 0; i < waiting; ++i) worker.add(2048, kOutput, 16);
  const auto timing = bench::measure([&] { worker.step(); });
  report.add(us_per_step(
      "256 decode rows and their events, " + std::to_string(waiting) + " waiting for pages",
      timing));
}

void bench_turnover(bench::Report& report) {
  Worker worker({.rows_max = 8192,
                 .chunk_rows_max = 2048,
                 .sequences_max = kRunning,
                 .context_tokens_max = 8192},
                16'384);
  worker.ends_at = 600;
  const auto timing = bench::measure([&] {
    while (worker.scheduler.stats().waiting < 64) worker.add(512, 100, 4);
    worker.step();
  });
  report.add(us_per_step("requests come and go: 512 + 88 tokens, 4 tenants", timing));
  const double steps = static_cast<double>(worker.scheduler.stats().steps);
  report.note("in the last case " +
              std::to_string(static_cast<double>(worker.scheduler.stats().rows) / steps) +
              " rows a step, " + std::to_string(static_cast<double>(worker.finished) / steps) +
              " requests end in a step");
}

}  // namespace
}  // namespace tandem::sched

int main(int argc, char** argv) {
  tandem::bench::Report report(argc, argv, "Scheduler");
  tandem::sched::bench_decode(report, 0);
  tandem::sched::bench_decode(report, 1000);
  tandem::sched::bench_turnover(report);
  report.note("pages of 64 tokens; step() and chunk_done, token_sampled or finish of every row");
  return report.finish();
}
