// SPDX-License-Identifier: Apache-2.0
// Which waiting sequences get pages in this step.
#include <algorithm>

#include "sched/state.h"

namespace tandem::sched {

void Scheduler::State::enqueue(int32_t slot) {
  Sequence& sequence = at(slot);
  Tenant& tenant = tenants.at(sequence.tenant);
  sequence.before = tenant.waiting_last;
  sequence.after = kNone;
  (tenant.waiting_last == kNone ? tenant.waiting_first : at(tenant.waiting_last).after) = slot;
  tenant.waiting_last = slot;
  ++tenant.waiting;
}

void Scheduler::State::dequeue(int32_t slot) {
  Sequence& sequence = at(slot);
  Tenant& tenant = tenants.at(sequence.tenant);
  (sequence.before == kNone ? tenant.waiting_first : at(sequence.before).after) = sequence.after;
  (sequence.after == kNone ? tenant.waiting_last : at(sequence.after).before) = sequence.before;
  sequence.before = sequence.after = kNone;
  --tenant.waiting;
  if (sequence.bypassed >= settings.bypass_max) std::erase(overdue, slot);
}

void Scheduler::State::push_candidate(int32_t tenant, int32_t slot) {
  if (slot == kNone) return;
  const Tenant& t = tenants.at(tenant);
  heap.push_back({t.served + t.reserved, at(slot).order, tenant, slot});
  std::ranges::push_heap(heap, kGoesLater);
}

void Scheduler::State::admit_waiting(TimePoint now) {
  stats.twin_waiting = 0;
  if (stats.waiting == 0) return;
  // Who was passed often enough goes first, and until it fits nobody else gets pages.
  while (!overdue.empty() && admitted_count() < settings.sequences_max) {
    if (try_admit(overdue.front(), now, false) != Verdict::kAdmitted) return;
  }
  heap.clear();
  for (int32_t tenant = 0; tenant < tenants.slots(); ++tenant) {
    push_candidate(tenant, tenants.at(tenant).waiting_first);
  }
  blocked.clear();
  while (!heap.empty() && admitted_count() < settings.sequences_max && overdue.empty()) {
    const Candidate candidate = heap.front();
    std::ranges::pop_heap(heap, kGoesLater);
    heap.pop_back();
    const int32_t next = at(candidate.slot).after;
    const Verdict verdict = try_admit(candidate.slot, now, true);
    if (verdict == Verdict::kAdmitted) {
      count_bypass();
    } else if (verdict == Verdict::kTwin) {
      ++stats.twin_waiting;
    } else {
      blocked.push_back(candidate.slot);
      if (static_cast<int32_t>(blocked.size()) >= settings.blocked_max) return;
    }
    push_candidate(candidate.tenant, next);
  }
}

void Scheduler::State::count_bypass() {
  stats.bypasses += static_cast<int64_t>(blocked.size());
  for (const int32_t slot : blocked) {
    if (++at(slot).bypassed == settings.bypass_max) overdue.push_back(slot);
  }
}

Scheduler::State::Verdict Scheduler::State::try_admit(int32_t slot, TimePoint now,
                                                      bool may_wait_for_twin) {
  Sequence& sequence = at(slot);
  if (may_wait_for_twin && sequence.twin_waited &&
      now - sequence.twin_since < settings.twin_wait_max &&
      in_progress.contains(sequence.twin_page)) {
    return Verdict::kTwin;
  }
  const int32_t total = worst_case_pages(sequence);
  // Even with the whole prompt cached there would be no room: spares the look-up.
  if (total - static_cast<int32_t>(sequence.hashes.size()) > pool.available()) {
    return Verdict::kBlocked;
  }
  matched.clear();
  int32_t cached_matched = 0;  // matched pages that would leave the pages that can be evicted
  if (settings.prefix_cache && !sequence.prompt_logits) {
    const int32_t matched_pages =
        cache.match_pages(sequence.tokens, sequence.salt, sequence.hashes, matched);
    for (const PageId page : matched) {
      cached_matched += pool.state(page) == kv::PageState::kCached ? 1 : 0;
    }
    if (may_wait_for_twin && waits_for_twin(sequence, matched_pages, now)) {
      return Verdict::kTwin;
    }
  }
  const int32_t missing = total - static_cast<int32_t>(matched.size());
  if (missing > pool.available() - cached_matched) return Verdict::kBlocked;
  admit(slot);
  return Verdict::kAdmitted;
}

// Pages of this prompt that a running sequence is computing right now need not be computed again:
// true while the last one of them isn't there yet, for a bounded time since the first wait.
bool Scheduler::State::waits_for_twin(Sequence& sequence, int32_t matched_pages, TimePoint now) {
  const int32_t usable_pages = (sequence.prompt_tokens - 1) / cache.page_tokens();
  int32_t page = matched_pages;
  while (page < usable_pages && in_progress.contains(sequence.hashes[static_cast<size_t>(page)])) {
    ++page;
  }
  if (page == matched_pages) return false;
  if (!sequence.twin_waited) sequence.twin_since = now;
  sequence.twin_waited = true;
  sequence.twin_page = sequence.hashes[static_cast<size_t>(page) - 1];
  return now - sequence.twin_since < settings.twin_wait_max;
}

void Scheduler::State::admit(int32_t slot) {
  Sequence& sequence = at(slot);
  dequeue(slot);
  int32_t cached_pages = 0;
  if (settings.prefix_cache && !sequence.prompt_logits) {
    cached_pages =
        sequence.pages.acquire_prefix(cache, sequence.tokens, sequence.salt, sequence.hashes);
    stats.prefix_asked_tokens += sequence.prompt_tokens;
  }
  CHECK(sequence.pages.grow(worst_case_pages(sequence)), "pages {}", worst_case_pages(sequence));
  sequence.cached_tokens = cached_pages * cache.page_tokens();
  sequence.computed = sequence.cached_tokens;
  stats.prefix_hit_tokens += sequence.cached_tokens;
  count_prompt_rows_left(-sequence.cached_tokens);
  for (size_t page = static_cast<size_t>(cached_pages); page < sequence.hashes.size(); ++page) {
    in_progress.try_emplace(sequence.hashes[page], slot);
  }
  // The token path allocates nothing: room for the whole output now.
  sequence.hashes.reserve(sequence.pages.pages().size());
  sequence.tokens.reserve(static_cast<size_t>(sequence.prompt_tokens + sequence.max_tokens));
  const int64_t prompt_rows = settings.role == Role::kDecode ? 0 : sequence.prompt_left();
  const int64_t output_rows = settings.role == Role::kPrefill ? 0 : sequence.max_tokens;
  sequence.reserved_rows = prompt_rows + output_rows;
  tenants.at(sequence.tenant).reserved += sequence.reserved_rows;
  if (settings.role == Role::kDecode) {
    sequence.transfer_open = true;
    set_phase(sequence, Phase::kReserved);
  } else {
    set_phase(sequence, Phase::kRunning);
    running.push_back(slot);
  }
  ++stats.admitted;
  plan.admitted.push_back({sequence.id, sequence.cached_tokens, sequence.pages.pages()});
}

void Scheduler::State::release_in_progress(int32_t slot, int32_t page_begin, int32_t page_end) {
  const Sequence& sequence = at(slot);
  for (int32_t page = page_begin; page < page_end; ++page) {
    const auto entry = in_progress.find(sequence.hashes[static_cast<size_t>(page)]);
    if (entry != in_progress.end() && entry->second == slot) in_progress.erase(entry);
  }
}

}  // namespace tandem::sched
