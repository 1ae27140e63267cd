// SPDX-License-Identifier: Apache-2.0
#include "engine/worker_core.h"

#include <utility>

namespace tandem::engine {
namespace {

sched::Settings with_role(sched::Settings settings, sched::Role role) {
  settings.role = role;
  return settings;
}

std::string role_name(sched::Role role) {
  switch (role) {
    case sched::Role::kPrefill:
      return "prefill";
    case sched::Role::kDecode:
      return "decode";
    case sched::Role::kWhole:
      return "whole";
  }
  return "unknown";
}

}  // namespace

FirstToken PromptProgress::first_token(const Submit& submit, std::optional<SampledToken> token,
                                       TimePoint now) {
  FirstToken first{.id = submit.id, .token = std::move(token)};
  first.prompt_cached_tokens = cached_tokens;
  first.timings = {.queue = first_chunk_start - submit.submitted,
                   .prefill = last_chunk_end - first_chunk_start,
                   .sample = now - last_chunk_end};
  first.prompt_logprobs = std::move(logprobs);
  return first;
}

Result<std::unique_ptr<WorkerCore>> WorkerCore::create(const WorkerSettings& settings,
                                                       sched::Role role, Compute compute) {
  if (settings.page_count < 1) {
    return Error{ErrorCode::kInvalidArgument, "a worker needs at least one KV page", "page_count"};
  }
  if (settings.logit_rows_max < 1) {
    return Error{ErrorCode::kInvalidArgument, "must be at least 1", "logit_rows_max"};
  }
  // The scheduler's own checks, before anything is allocated by them.
  {
    kv::PagePool pool({.page_count = 1});
    kv::PrefixCache cache(pool, {.page_tokens = compute.kv_layout.page_tokens});
    TRY(sched::Scheduler::create(with_role(settings.sched, role), pool, cache));
  }
  return std::unique_ptr<WorkerCore>(new WorkerCore(settings, role, std::move(compute)));
}

WorkerCore::WorkerCore(const WorkerSettings& settings, sched::Role role, Compute c)
    : compute(std::move(c)),
      kv(compute.kv_layout, settings.page_count),
      pool({.page_count = settings.page_count, .group_floor_pages = settings.cache_floor_pages}),
      cache(pool, {.page_tokens = compute.kv_layout.page_tokens, .secret = settings.cache_secret}),
      scheduler(sched::Scheduler::create(with_role(settings.sched, role), pool, cache).value()),
      runner(compute, kv,
             {.rows_max = settings.sched.rows_max,
              .sequences_max = settings.sched.sequences_max,
              .logit_rows_max = settings.logit_rows_max}),
      role_(role_name(role)) {}

EngineStatus::Worker WorkerCore::status() const {
  const sched::Stats stats = scheduler.stats();
  const kv::PageCounts pages = pool.counts();
  EngineStatus::Worker worker;
  worker.role = role_;
  worker.waiting = stats.waiting;
  worker.running = stats.running;
  worker.pages_total = pages.total;
  worker.pages_free = pages.free;
  worker.pages_cached = pages.cached;
  worker.pages_used = pages.referenced;
  worker.pages_quarantined = pages.quarantined;
  worker.tokens_computed = stats.rows;
  worker.prefix_hit_tokens = stats.prefix_hit_tokens;
  worker.prefix_asked_tokens = stats.prefix_asked_tokens;
  worker.batch_rows_last = stats.rows_last;
  return worker;
}

sched::SequenceSpec WorkerCore::spec_of(const Submit& submit) const {
  return {.id = submit.id,
          .prompt = submit.prompt,
          .max_tokens = submit.max_tokens,
          .salt = submit.cache_salt,
          .tenant = submit.tenant,
          .deadline = submit.deadline,
          .prompt_logits = submit.prompt_logprobs >= 0};
}

Error deadline_error() {
  return {ErrorCode::kDeadlineExceeded, "the request's time is over", ""};
}

}  // namespace tandem::engine
