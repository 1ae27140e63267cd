// SPDX-License-Identifier: Apache-2.0
#include "sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sched/state.h"

namespace tandem::sched {
namespace {

Error bad_setting(std::string_view name, std::string_view rule) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("scheduler setting {} {}", name, rule),
               std::string(name)};
}

Result<void> check_settings(const Settings& s, int32_t page_tokens) {
  if (s.sequences_max < 1) return bad_setting("sequences_max", "must be at least 1");
  if (s.waiting_max < 1) return bad_setting("waiting_max", "must be at least 1");
  if (s.tenant_waiting_max < 1) return bad_setting("tenant_waiting_max", "must be at least 1");
  if (s.context_tokens_max < 1) return bad_setting("context_tokens_max", "must be at least 1");
  if (s.bypass_max < 1) return bad_setting("bypass_max", "must be at least 1");
  if (s.blocked_max < 1) return bad_setting("blocked_max", "must be at least 1");
  if (s.chunk_rows_max < page_tokens) {
    return bad_setting("chunk_rows_max", fmt::format("must hold a page of {} tokens", page_tokens));
  }
  // Then a step always has a row for every sequence that decodes and a page of rows for a prompt:
  // neither kind starves the other.
  const int64_t decode_rows = s.role == Role::kPrefill ? 0 : s.sequences_max;
  const int64_t prompt_rows = s.role == Role::kDecode ? 0 : page_tokens;
  if (s.rows_max < decode_rows + prompt_rows) {
    return bad_setting("rows_max", fmt::format("must be at least {}", decode_rows + prompt_rows));
  }
  return {};
}

}  // namespace

Scheduler::State::State(const Settings& settings_in, kv::PagePool& pool_in,
                        kv::PrefixCache& cache_in)
    : settings(settings_in),
      pool(pool_in),
      cache(cache_in),
      tenants(2 * (settings_in.sequences_max + settings_in.waiting_max)) {
  const int32_t slots = settings.sequences_max + settings.waiting_max;
  const auto slot_count = static_cast<size_t>(slots);
  sequences.reserve(slot_count);
  for (int32_t slot = 0; slot < slots; ++slot) sequences.emplace_back(pool);
  for (int32_t slot = slots - 1; slot >= 0; --slot) free_slots.push_back(slot);
  slot_of.reserve(slot_count);
  running.reserve(static_cast<size_t>(settings.sequences_max));
  plan.rows.reserve(static_cast<size_t>(settings.sequences_max));
  plan.admitted.reserve(static_cast<size_t>(settings.sequences_max));
  plan.ended.reserve(slot_count);
  heap.reserve(slot_count);
  blocked.reserve(static_cast<size_t>(settings.blocked_max));
}

Result<Scheduler> Scheduler::create(const Settings& settings, kv::PagePool& pool,
                                    kv::PrefixCache& cache) {
  TRY(check_settings(settings, cache.page_tokens()));
  return Scheduler(std::make_unique<State>(settings, pool, cache));
}

Scheduler::Scheduler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Scheduler::~Scheduler() = default;
Scheduler::Scheduler(Scheduler&&) noexcept = default;
Scheduler& Scheduler::operator=(Scheduler&&) noexcept = default;

int32_t Scheduler::State::find(RequestId id) const {
  const auto entry = slot_of.find(id);
  return entry == slot_of.end() ? kNone : entry->second;
}

int32_t Scheduler::State::expect(RequestId id) const {
  const int32_t slot = find(id);
  CHECK(slot != kNone, "request {} is unknown", id.value);
  return slot;
}

// The last token of an answer is never an input, so it needs no place.
int64_t Scheduler::State::worst_case_positions(int64_t prompt_tokens, int64_t max_tokens) const {
  if (settings.role == Role::kPrefill) return prompt_tokens;
  return prompt_tokens + std::max<int64_t>(max_tokens, 1) - 1;
}

int32_t Scheduler::State::worst_case_pages(const Sequence& sequence) const {
  return kv::pages_for(worst_case_positions(sequence.prompt_tokens, sequence.max_tokens),
                       cache.page_tokens());
}

int32_t& Scheduler::State::count_of(Phase phase) {
  CHECK(phase != Phase::kUnused);
  if (phase == Phase::kReserved) return stats.reserved;
  if (phase == Phase::kRunning) return stats.running;
  if (phase == Phase::kHeld) return stats.held;
  return stats.waiting;
}

void Scheduler::State::set_phase(Sequence& sequence, Phase phase) {
  if (sequence.phase != Phase::kUnused) --count_of(sequence.phase);
  sequence.phase = phase;
  if (phase != Phase::kUnused) ++count_of(phase);
}

Result<void> Scheduler::State::check_fits(const SequenceSpec& spec) const {
  CHECK(
      !spec.prompt.empty() && (spec.max_tokens > 0 || (spec.max_tokens == 0 && spec.prompt_logits)),
      "prompt {} max_tokens {}", spec.prompt.size(), spec.max_tokens);
  const auto prompt_tokens = static_cast<int64_t>(spec.prompt.size());
  const int64_t tokens = prompt_tokens + spec.max_tokens;
  if (tokens > settings.context_tokens_max) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("prompt of {} and output of {} tokens exceed the context of {} tokens",
                             prompt_tokens, spec.max_tokens, settings.context_tokens_max),
                 prompt_tokens >= settings.context_tokens_max ? "prompt" : "max_tokens"};
  }
  const int64_t positions = worst_case_positions(prompt_tokens, spec.max_tokens);
  const int64_t capacity = int64_t{pool.counts().total} * cache.page_tokens();
  if (positions > capacity) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("prompt of {} and output of {} tokens exceed the KV cache of {} tokens",
                    prompt_tokens, spec.max_tokens, capacity),
        prompt_tokens > capacity ? "prompt" : "max_tokens"};
  }
  return {};
}

Result<void> Scheduler::add(SequenceSpec spec) {
  State& s = *state_;
  CHECK(s.find(spec.id) == kNone && !s.quarantined.contains(spec.id), "request {} is in use",
        spec.id.value);
  if (auto fits = s.check_fits(spec); !fits.ok()) {
    ++s.stats.refused;
    return fits;
  }
  const bool line_full = s.stats.waiting >= s.settings.waiting_max;
  if (line_full || s.tenants.waiting(spec.tenant) >= s.settings.tenant_waiting_max) {
    ++s.stats.refused;
    return Error{
        ErrorCode::kResourceExhausted,
        line_full ? "too many requests are waiting" : "too many of your requests are waiting", ""};
  }
  const int32_t slot = s.free_slots.back();
  s.free_slots.pop_back();
  Sequence& sequence = s.at(slot);
  CHECK(sequence.phase == Phase::kUnused && sequence.pages.pages().empty());
  sequence.id = spec.id;
  sequence.tokens = std::move(spec.prompt);
  sequence.prompt_tokens = static_cast<int32_t>(sequence.tokens.size());
  sequence.max_tokens = spec.max_tokens;
  sequence.salt = spec.salt;
  sequence.deadline = spec.deadline;
  sequence.prompt_logits = spec.prompt_logits;
  sequence.order = s.next_order++;
  if (s.settings.prefix_cache) s.cache.hash_pages(sequence.tokens, spec.salt, sequence.hashes);
  sequence.tenant = s.tenants.enter(spec.tenant);
  s.enqueue(slot);
  s.set_phase(sequence, Phase::kWaiting);
  s.slot_of.emplace(spec.id, slot);
  s.earliest_deadline = std::min(s.earliest_deadline, spec.deadline);
  s.count_prompt_rows_left(sequence.prompt_tokens);
  ++s.stats.added;
  return {};
}

void Scheduler::join(RequestId id, int32_t first_token) {
  State& s = *state_;
  const int32_t slot = s.expect(id);
  Sequence& sequence = s.at(slot);
  CHECK(sequence.phase == Phase::kReserved, "request {} phase {}", id.value,
        static_cast<int>(sequence.phase));
  sequence.transfer_open = false;
  sequence.computed = sequence.prompt_tokens;
  sequence.tokens.push_back(first_token);
  s.set_phase(sequence, Phase::kRunning);
  s.running.push_back(slot);
  s.insert_full_pages(slot);
}

void Scheduler::State::insert_full_pages(int32_t slot) {
  Sequence& sequence = at(slot);
  if (!settings.prefix_cache) return;
  const int32_t full_pages = sequence.computed / cache.page_tokens();
  const int32_t inserted = sequence.pages.inserted_pages();
  if (full_pages == inserted) return;
  const auto computed = std::span(sequence.tokens).first(static_cast<size_t>(sequence.computed));
  cache.hash_pages(computed, sequence.salt, sequence.hashes);
  sequence.pages.insert_full(cache, computed, sequence.salt, sequence.hashes, full_pages);
  release_in_progress(slot, inserted, full_pages);
}

void Scheduler::chunk_done(RequestId id) {
  State& s = *state_;
  const int32_t slot = s.expect(id);
  Sequence& sequence = s.at(slot);
  CHECK(sequence.planned_rows > 0, "request {} had no rows", id.value);
  sequence.computed += std::exchange(sequence.planned_rows, 0);
  s.insert_full_pages(slot);
  if (s.settings.role == Role::kPrefill && sequence.prompt_left() == 0) {
    s.set_phase(sequence, Phase::kHeld);
    std::erase(s.running, slot);
  }
}

void Scheduler::token_sampled(RequestId id, int32_t token) {
  Sequence& sequence = state_->at(state_->expect(id));
  CHECK(sequence.phase == Phase::kRunning && sequence.planned_rows == 0 &&
            sequence.computed == static_cast<int32_t>(sequence.tokens.size()) &&
            sequence.output_tokens() < sequence.max_tokens,
        "request {} computed {} of {} tokens, output {} of {}", id.value, sequence.computed,
        sequence.tokens.size(), sequence.output_tokens(), sequence.max_tokens);
  sequence.tokens.push_back(token);
}

void Scheduler::finish(RequestId id) {
  State& s = *state_;
  s.end(s.expect(id));
  ++s.stats.finished;
}

bool Scheduler::cancel(RequestId id) {
  State& s = *state_;
  const int32_t slot = s.find(id);
  if (slot == kNone) return false;
  s.end(slot);
  ++s.stats.cancelled;
  return true;
}

void Scheduler::State::end(int32_t slot) {
  Sequence& sequence = at(slot);
  count_prompt_rows_left(-sequence.prompt_unplanned());
  if (sequence.phase == Phase::kWaiting) {
    dequeue(slot);
  } else {
    tenants.at(sequence.tenant).reserved -= sequence.reserved_rows;
    release_in_progress(slot, sequence.pages.inserted_pages(),
                        static_cast<int32_t>(sequence.hashes.size()));
    if (sequence.phase == Phase::kRunning) std::erase(running, slot);
  }
  if (sequence.transfer_open) {
    quarantined.emplace(sequence.id, sequence.pages.quarantine());
    ++stats.quarantined;
  }
  tenants.leave(sequence.tenant);
  slot_of.erase(sequence.id);
  set_phase(sequence, Phase::kUnused);
  sequence = Sequence(pool);  // gives back what pages it still has
  free_slots.push_back(slot);
}

void Scheduler::transfer_opened(RequestId id) {
  Sequence& sequence = state_->at(state_->expect(id));
  CHECK(sequence.phase != Phase::kWaiting, "request {} has no pages", id.value);
  sequence.transfer_open = true;
}

void Scheduler::transfer_closed(RequestId id) {
  State& s = *state_;
  const auto held = s.quarantined.find(id);
  if (held == s.quarantined.end()) {
    if (const int32_t slot = s.find(id); slot != kNone) s.at(slot).transfer_open = false;
    return;
  }
  kv::release_held(s.pool, held->second);
  s.quarantined.erase(held);
  --s.stats.quarantined;
}

void Scheduler::State::expire(TimePoint now) {
  if (now < earliest_deadline) return;
  earliest_deadline = TimePoint::max();
  for (size_t slot = 0; slot < sequences.size(); ++slot) {
    const Sequence& sequence = sequences[slot];
    if (sequence.phase == Phase::kUnused) continue;
    if (now < sequence.deadline || sequence.deadline == TimePoint::max()) {
      earliest_deadline = std::min(earliest_deadline, sequence.deadline);
      continue;
    }
    plan.ended.push_back({sequence.id, EndReason::kDeadline});
    end(static_cast<int32_t>(slot));
    ++stats.expired;
  }
}

const Plan& Scheduler::step(TimePoint now) {
  State& s = *state_;
  s.plan.rows.clear();
  s.plan.admitted.clear();
  s.plan.ended.clear();
  s.plan.row_count = 0;
  for (const int32_t slot : s.running) {
    CHECK(s.at(slot).planned_rows == 0, "request {} has rows of the last plan still open",
          s.at(slot).id.value);
  }
  s.expire(now);
  s.admit_waiting(now);
  s.plan_decode_rows();
  s.plan_prompt_rows();
  ++s.stats.steps;
  s.stats.rows_last = s.plan.row_count;
  return s.plan;
}

bool Scheduler::knows(RequestId id) const {
  return state_->find(id) != kNone;
}

std::span<const PageId> Scheduler::pages(RequestId id) const {
  return state_->at(state_->expect(id)).pages.pages();
}

std::span<const int32_t> Scheduler::tokens(RequestId id) const {
  return state_->at(state_->expect(id)).tokens;
}

int32_t Scheduler::cached_tokens(RequestId id) const {
  return state_->at(state_->expect(id)).cached_tokens;
}

bool Scheduler::idle() const {
  return state_->stats.waiting == 0 && state_->running.empty();
}

Stats Scheduler::stats() const {
  Stats stats = state_->stats;
  stats.tenants = state_->tenants.present();
  return stats;
}

}  // namespace tandem::sched
