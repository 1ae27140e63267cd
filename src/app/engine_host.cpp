// SPDX-License-Identifier: Apache-2.0
#include "app/engine_host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "core/log.h"
#include "engine/model_compute.h"

namespace tandem::app {
namespace {

// How long an idle worker sleeps before it looks at its timers again (deadlines, transfers).
constexpr std::chrono::milliseconds kIdleWait{5};

int threads_each(const EngineFlags& flags) {
  if (flags.threads > 0) return flags.threads;
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return std::max(1, flags.whole ? cores : cores / 2);
}

int32_t context_tokens(const EngineFlags& flags, const model::ModelConfig& config) {
  return flags.context_tokens > 0 ? flags.context_tokens : config.max_position;
}

Result<int32_t> pages_of(const EngineFlags& flags, const model::KvLayout& layout) {
  const double page_bytes = 2.0 * layout.layers * static_cast<double>(layout.page_bytes());
  const double pages = flags.kv_gib * 1073741824.0 / page_bytes;
  if (pages < 2.0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--kv-gib {} holds no two pages of {:.1f} MiB", flags.kv_gib,
                             page_bytes / 1048576.0),
                 "kv-gib"};
  }
  return static_cast<int32_t>(std::min(pages, 1e9));
}

// Rows of one step: what was asked for, but always room for every running sequence and one page of
// a prompt, which the scheduler insists on.
int32_t batch_rows(const EngineFlags& flags) {
  return std::max(flags.batch_tokens, flags.sequences + flags.page_tokens);
}

engine::WorkerSettings worker_settings(const EngineFlags& flags, const model::ModelConfig& config,
                                       int32_t pages, bool one_tenant) {
  engine::WorkerSettings worker;
  worker.sched.rows_max = batch_rows(flags);
  worker.sched.chunk_rows_max = flags.chunk_tokens;
  worker.sched.sequences_max = flags.sequences;
  worker.sched.waiting_max = flags.queue;
  // Where keys tell tenants apart, none of them may fill more than half of the line.
  worker.sched.tenant_waiting_max = one_tenant ? flags.queue : std::max(1, flags.queue / 2);
  worker.sched.context_tokens_max = context_tokens(flags, config);
  worker.sched.prefix_cache = flags.prefix_cache;
  worker.page_count = pages;
  worker.cache_secret = os_random_u64();
  return worker;
}

}  // namespace

uint64_t os_random_u64() {
  uint64_t bits = 0;
  CHECK(getentropy(&bits, sizeof bits) == 0);
  return bits;
}

Exec EngineHost::Seat::exec() const {
  return Exec{.scratch = scratch.get(), .parallel_for = team->as_parallel_for()};
}

engine::Compute EngineHost::make_compute(const Args& args, int threads) {
  auto seat = std::make_unique<Seat>();
  seat->team = std::make_unique<CpuTeam>(threads);
  const model::ForwardLimits limits{
      .batch_rows_max = batch_rows(args.flags),
      .logit_rows_max = std::max(engine::WorkerSettings{}.logit_rows_max, args.flags.sequences),
      .context_tokens_max = context_tokens(args.flags, args.text.config),
      .page_tokens = args.flags.page_tokens};
  seat->scratch = std::make_unique<Scratch>(model_->scratch_bytes(limits));
  engine::Compute compute = engine::make_model_compute(
      *model_, seat->exec(),
      {.page_tokens = args.flags.page_tokens, .vocab_sampled = args.text.tokenizer->vocab_size()});
  seats_.push_back(std::move(seat));
  return compute;
}

Result<void> EngineHost::build(const Args& args) {
  const int32_t context = context_tokens(args.flags, args.text.config);
  if (context > args.text.config.max_position) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--context-tokens {} is over the model's max_position_embeddings {}",
                             context, args.text.config.max_position),
                 "context-tokens"};
  }
  if (args.flags.chunk_tokens < args.flags.page_tokens) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--chunk-tokens {} is less than --page-tokens {}: a chunk ends at a page",
                    args.flags.chunk_tokens, args.flags.page_tokens),
        "chunk-tokens"};
  }
  CpuTeam packing(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  model_.emplace(TRY(load_model(args.flags.model_dir, args.text.config,
                                Exec{.parallel_for = packing.as_parallel_for()}, args.quiet)));
  const int32_t pages = TRY(pages_of(args.flags, model_->kv_layout(args.flags.page_tokens)));
  engine::WorkerSettings worker =
      worker_settings(args.flags, args.text.config, pages, args.one_tenant);
  return args.flags.whole ? build_whole(args, worker) : build_split(args, worker);
}

Result<void> EngineHost::build_split(const Args& args, engine::WorkerSettings worker) {
  const int threads = threads_each(args.flags);
  engine::SplitSettings settings;
  settings.limits = {.model_name = args.model_name,
                     .tokenizer_vocab_size = args.text.tokenizer->vocab_size(),
                     .queue_requests_max = args.flags.queue};
  settings.prefill.worker = worker;
  worker.cache_secret = os_random_u64();
  settings.decode.worker = worker;
  split_ =
      TRY(engine::SplitEngine::create(settings, {.prefill = make_compute(args, threads),
                                                 .decode = make_compute(args, threads),
                                                 .transports = engine::make_loopback_transports(),
                                                 .link = link_,
                                                 .clock = clock_}));
  log::info("split: a prefill and a decode worker, {} thread{} and {} KV pages of {} tokens each",
            threads, threads == 1 ? "" : "s", worker.page_count, args.flags.page_tokens);
  return {};
}

Result<void> EngineHost::build_whole(const Args& args, const engine::WorkerSettings& worker) {
  const int threads = threads_each(args.flags);
  engine::WholeSettings settings;
  settings.limits = {.model_name = args.model_name,
                     .tokenizer_vocab_size = args.text.tokenizer->vocab_size(),
                     .queue_requests_max = args.flags.queue};
  settings.worker = worker;
  whole_ = TRY(engine::WholeEngine::create(
      settings, {.compute = make_compute(args, threads), .link = link_, .clock = clock_}));
  log::info("whole: one worker, {} thread{} and {} KV pages of {} tokens", threads,
            threads == 1 ? "" : "s", worker.page_count, args.flags.page_tokens);
  return {};
}

Result<std::unique_ptr<EngineHost>> EngineHost::create(const Args& args) {
  std::unique_ptr<EngineHost> host(new EngineHost(static_cast<size_t>(args.flags.queue)));
  TRY(host->build(args));
  return host;
}

EngineHost::~EngineHost() {
  stop();
}

const engine::EngineInfo& EngineHost::info() const {
  return split_ ? split_->info() : whole_->info();
}

void EngineHost::loop(const std::function<bool(TimePoint)>& step,
                      const std::function<void(Duration)>& wait) const {
  while (!stopping_) {
    if (!step(clock_.now())) wait(kIdleWait);
  }
}

void EngineHost::start() {
  CHECK(threads_.empty());
  if (whole_) {
    threads_.emplace_back([this] {
      loop([this](TimePoint now) { return whole_->step(now); },
           [this](Duration most) { whole_->wait(most); });
    });
    return;
  }
  threads_.emplace_back([this] {
    loop([this](TimePoint now) { return split_->step_prefill(now); },
         [this](Duration most) { split_->wait_prefill(most); });
  });
  threads_.emplace_back([this] {
    loop([this](TimePoint now) { return split_->step_decode(now); },
         [this](Duration most) { split_->wait_decode(most); });
  });
}

void EngineHost::drain() {
  split_ ? split_->drain() : whole_->drain();
}

void EngineHost::stop() {
  stopping_ = true;
  if (split_) split_->wake();
  if (whole_) whole_->wake();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace tandem::app
