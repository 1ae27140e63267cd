// SPDX-License-Identifier: Apache-2.0
// What the handoff and the engine around a model cost: digests, loopback, the time from the last
// layer to the decoder's batch, and a step of 256 sequences with a model that costs nothing.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "bench/report.h"
#include "core/rng.h"
#include "engine/fake_compute.h"
#include "engine/model_compute.h"
#include "engine/split_engine.h"
#include "engine/whole_engine.h"
#include "model/safetensors.h"

namespace tandem::engine {
namespace {

using bench::Report;
using bench::Row;

constexpr double kGiga = 1e9;
constexpr size_t kPage = size_t{64} << 10;  // 4 heads of 64 tokens of 128 bf16
constexpr int32_t kPages = 768;             // 48 MiB: 6,000 tokens of tandem-small

double bytes_of(int32_t pages) {
  return static_cast<double>(pages) * static_cast<double>(kPage);
}

Buffer random_bytes(size_t bytes) {
  Buffer buffer(bytes);
  Rng rng(1);
  for (uint64_t& word : buffer.span_of<uint64_t>()) word = rng.next_u64();
  return buffer;
}

// Gives the seconds per byte of a digest.
double digest_rows(Report& report) {
  const Buffer from = random_bytes(kPage * kPages);
  const Buffer to(kPage * kPages);
  const auto copied = bench::measure([&] {
    for (size_t i = 0; i < kPages; ++i) {
      std::memcpy(to.data() + i * kPage, from.data() + i * kPage, kPage);
    }
    bench::keep(to.data());
  });
  const double memcpy_rate = bytes_of(kPages) / copied.median_s / kGiga;
  const auto digested = bench::measure([&] {
    for (size_t i = 0; i < kPages; ++i) {
      const auto digest = transfer::digest_of(std::span(from.data() + i * kPage, kPage));
      bench::keep(&digest);
    }
  });
  Row row = Row::rate("handoff/digest", "64 KiB pages, 48 MiB", bytes_of(kPages) / kGiga, "GB/s",
                      digested);
  row.peer = "memcpy";
  row.peer_value = memcpy_rate;
  report.add(row);

  transfer::LoopbackFabric fabric({.bytes_per_step = UINT64_MAX});
  const auto sender = fabric.make_endpoint();
  const auto receiver = fabric.make_endpoint();
  const auto src = sender->register_memory(from.span_of<std::byte>()).value();
  const auto dst = receiver->register_memory(to.span_of<std::byte>()).value();
  std::vector<transfer::Completion> done;
  std::vector<transfer::Parts> arrived;
  const auto moved = bench::measure([&] {
    for (int32_t first = 0; first < kPages; first += 8) {  // a chunk of 512 tokens is 8 pages
      transfer::PagedWrite write{
          .length = kPage, .src = src, .src_stride = kPage, .dst = dst, .dst_stride = kPage};
      for (int32_t i = first; i < first + 8; ++i) {
        write.src_indices.push_back(i);
        write.dst_indices.push_back(kPages - 1 - i);
      }
      const transfer::HandoffKey key{.handoff = {1}, .epoch = 1};
      CHECK(sender
                ->submit({.op = std::move(write),
                          .owner = key,
                          .parts = transfer::Parts{key, static_cast<uint32_t>(first), 8}})
                .value());
    }
    sender->step(TimePoint{});
    done.clear();
    arrived.clear();
    sender->take_completions(done);
    receiver->take_arrivals(arrived);
  });
  row = Row::rate("handoff/loopback", "64 KiB pages, 8 a write", bytes_of(kPages) / kGiga, "GB/s",
                  moved);
  row.limit = memcpy_rate;
  row.peer = "memcpy";
  row.peer_value = memcpy_rate;
  report.add(row);
  return digested.median_s / bytes_of(kPages);
}

WorkerSettings worker_settings() {
  WorkerSettings worker;
  worker.sched = {.rows_max = 1024,
                  .chunk_rows_max = 512,
                  .sequences_max = 256,
                  .waiting_max = 1024,
                  .context_tokens_max = 4096,
                  .prefix_cache = false};
  worker.page_count = 1024;
  worker.logit_rows_max = 256;
  return worker;
}

EngineLimits limits() {
  return {.model_name = "bench", .queue_requests_max = 1024};
}

struct OwnedCompute {
  explicit OwnedCompute(const model::Model& model)
      : scratch(model.scratch_bytes(
            {.batch_rows_max = 1024, .logit_rows_max = 256, .context_tokens_max = 4096})) {
    exec.scratch = &scratch;
    compute = make_model_compute(model, exec, {.page_tokens = 64});
  }
  Scratch scratch;
  Exec exec;
  Compute compute;
};

struct Joined {
  Duration prefill{};     // of the prompt's chunks
  Duration after_last{};  // last chunk computed -> in the decoder's batch
};

// One prompt through a split engine; steps as app/ makes them.
Joined hand_off(const model::Model& model, int32_t prompt_tokens, bool threads) {
  const OwnedCompute prefill(model), decode(model);
  const SteadyClock clock;
  Link link(16);
  auto made = SplitEngine::create({.limits = limits(),
                                   .prefill = {.worker = worker_settings()},
                                   .decode = {.worker = worker_settings()}},
                                  {.prefill = prefill.compute,
                                   .decode = decode.compute,
                                   .transports = make_loopback_transports(),
                                   .link = link,
                                   .clock = clock});
  SplitEngine& engine = *made.value();
  Rng rng(3);
  Submit request{.id = {1}, .max_tokens = 3};
  request.sampling.temperature = 0;
  for (int32_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>(rng.below(4000)));
  }
  request.submitted = clock.now();
  CHECK(link.try_submit(request));
  std::atomic<bool> stop{false};
  std::thread other;
  if (threads) {
    other = std::thread([&] {
      while (!stop.load()) {
        if (!engine.step_prefill(clock.now())) engine.wait_prefill(std::chrono::milliseconds(1));
      }
    });
  }
  Joined joined;
  std::vector<TokenEvent> events;
  for (bool ended = false; !ended;) {
    const bool worked = threads ? engine.step_decode(clock.now()) : engine.step(clock.now());
    if (!worked) engine.wait_decode(std::chrono::milliseconds(1));
    events.clear();
    link.take_events(events);
    for (const TokenEvent& event : events) {
      if (event.timings) joined.prefill = event.timings->prefill;
      ended |= event.finish != FinishReason::kNone;
    }
  }
  stop = true;
  engine.wake();
  if (other.joinable()) other.join();
  CHECK(engine.decode().stats().joined == 1);
  joined.after_last = engine.decode().stats().joined_after;
  return joined;
}

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

void handoff_rows(Report& report, double digest_s_per_byte) {
  const std::filesystem::path folder = std::string(TANDEM_SOURCE_DIR) + "/models/tandem-small";
  const auto config = model::load_config(folder);
  const auto checkpoint = model::Checkpoint::open(folder);
  if (!config.ok() || !checkpoint.ok()) {
    report.note("models/tandem-small is absent: no handoff rows");
    return;
  }
  const auto weights = model::load_weights(config.value(), checkpoint.value(), {});
  const Exec exec;
  const model::Model model = model::Model::create(config.value(), weights.value(), exec);
  for (const int32_t tokens : {512, 3968}) {
    const auto layout = model.kv_layout(64);
    const int32_t pages = tokens / 64;
    const double bytes = static_cast<double>(part_count(layout, static_cast<size_t>(pages))) *
                         static_cast<double>(layout.page_bytes());
    for (const bool threads : {false, true}) {
      std::vector<double> after, prefill;
      for (int i = 0; i < (report.quick() ? 3 : 9); ++i) {
        const Joined joined = hand_off(model, tokens, threads);
        after.push_back(seconds(joined.after_last) * 1e3);
        prefill.push_back(seconds(joined.prefill));
      }
      std::sort(after.begin(), after.end());
      std::sort(prefill.begin(), prefill.end());
      report.add({.name = "handoff/join",
                  .case_name = fmt::format("tandem-small, {} tokens, {}", tokens,
                                           threads ? "two threads" : "one thread"),
                  .value = after[after.size() / 2],
                  .unit = "ms",
                  .limit = 2.0,
                  .min = after.front(),
                  .max = after.back(),
                  .repeats = static_cast<int>(after.size())});
      if (threads) continue;
      const double prefill_s = prefill[prefill.size() / 2];
      report.add({.name = "handoff/digest_share",
                  .case_name = fmt::format("one side, {} tokens, {:.0f} ms of prefill", tokens,
                                           prefill_s * 1e3),
                  .value = 100 * bytes * digest_s_per_byte / prefill_s,
                  .unit = "% of prefill",
                  .limit = 2.0});
    }
  }
}

// 256 sequences that decode together, with a model that costs next to nothing.
template <typename Engine>
Row decode_row(const std::string& name, Engine& engine, Link& link, const Clock& clock,
               int32_t tokens_each) {
  constexpr uint64_t kSequences = 256;
  for (uint64_t i = 1; i <= kSequences; ++i) {
    Submit request{.id = {i}, .prompt = {static_cast<int32_t>(i % 16)}, .max_tokens = tokens_each};
    request.sampling.seed = i;
    CHECK(link.try_submit(request));
  }
  std::vector<TokenEvent> events;
  size_t tokens = 0;
  size_t ended = 0;
  int64_t steps = 0;
  TimePoint start = clock.now();
  while (ended < kSequences) {
    engine.step(clock.now());
    ++steps;
    events.clear();
    link.take_events(events);
    tokens += events.size();
    for (const TokenEvent& event : events) ended += event.finish != FinishReason::kNone;
    if (steps == 20) {  // all have joined
      start = clock.now();
      tokens = 0;
    }
  }
  const double ns = seconds(clock.now() - start) * 1e9 / static_cast<double>(tokens);
  return {.name = name,
          .case_name = fmt::format("256 sequences, fake model, {:.0f} us a step", ns * 0.256),
          .value = ns,
          .unit = "ns/token"};
}

void engine_rows(Report& report) {
  const FakeSettings fake{.layers = 1,
                          .kv_heads = 1,
                          .head_dim = 4,
                          .page_tokens = 16,
                          .vocab = 16,
                          .read_last_only = true};
  WorkerSettings worker = worker_settings();
  worker.page_count = 256 * 64;
  worker.sched.context_tokens_max = 1024;
  const int32_t tokens_each = report.quick() ? 200 : 1000;
  const SteadyClock clock;
  {
    Link link(1024);
    auto engine =
        WholeEngine::create({.limits = limits(), .worker = worker},
                            {.compute = make_fake_compute(fake), .link = link, .clock = clock});
    report.add(decode_row("engine/whole", *engine.value(), link, clock, tokens_each));
  }
  Link link(1024);
  auto engine = SplitEngine::create(
      {.limits = limits(), .prefill = {.worker = worker}, .decode = {.worker = worker}},
      {.prefill = make_fake_compute(fake),
       .decode = make_fake_compute(fake),
       .transports = make_loopback_transports(),
       .link = link,
       .clock = clock});
  report.add(decode_row("engine/split", *engine.value(), link, clock, tokens_each));
}

}  // namespace
}  // namespace tandem::engine

int main(int argc, char** argv) {
  tandem::bench::Report report(argc, argv, "handoff and engine");
  const double digest_s_per_byte = tandem::engine::digest_rows(report);
  tandem::engine::engine_rows(report);
  tandem::engine::handoff_rows(report, digest_s_per_byte);
  return report.finish();
}
