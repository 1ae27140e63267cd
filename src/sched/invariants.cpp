// SPDX-License-Identifier: Apache-2.0
// What must hold between two calls of the scheduler. Tests ask after each operation.
#include <algorithm>

#include "sched/state.h"

namespace tandem::sched {
namespace {

struct PhaseCounts {
  int32_t waiting = 0, reserved = 0, running = 0, held = 0;
};

void count_phase(Phase phase, PhaseCounts& counts) {
  counts.waiting += phase == Phase::kWaiting ? 1 : 0;
  counts.reserved += phase == Phase::kReserved ? 1 : 0;
  counts.running += phase == Phase::kRunning ? 1 : 0;
  counts.held += phase == Phase::kHeld ? 1 : 0;
}

}  // namespace

void Scheduler::State::check_sequence(int32_t slot) const {
  const Sequence& q = at(slot);
  CHECK(find(q.id) == slot, "request {}", q.id.value);
  CHECK(q.deadline >= earliest_deadline, "request {}", q.id.value);
  const auto pages = q.pages.pages();
  if (q.phase == Phase::kWaiting) {
    CHECK(pages.empty() && q.computed == 0 && q.reserved_rows == 0 && !q.transfer_open);
    const bool is_overdue = std::ranges::find(overdue, slot) != overdue.end();
    CHECK(is_overdue == (q.bypassed >= settings.bypass_max), "request {}", q.id.value);
    return;
  }
  CHECK(static_cast<int32_t>(pages.size()) == worst_case_pages(q), "request {}", q.id.value);
  CHECK(q.reserved_rows >= 0 && q.planned_rows >= 0 && q.output_tokens() <= q.max_tokens);
  const auto tokens = static_cast<int32_t>(q.tokens.size());
  CHECK(q.computed + q.planned_rows <= tokens, "request {}", q.id.value);
  CHECK(q.computed + q.planned_rows <= static_cast<int32_t>(pages.size()) * cache.page_tokens());
  // Pages that are still to be written belong to this sequence alone.
  for (auto page = static_cast<size_t>(q.computed / cache.page_tokens()); page < pages.size();
       ++page) {
    CHECK(pool.references(pages[page]) == 1 && !pool.kept(pages[page]), "page {} of request {}",
          pages[page].value, q.id.value);
  }
}

void Scheduler::State::check_tenants() const {
  std::vector<Tenant> seen(static_cast<size_t>(tenants.slots()));
  for (const Sequence& q : sequences) {
    if (q.phase == Phase::kUnused) continue;
    ++seen[static_cast<size_t>(q.tenant)].sequences;
    seen[static_cast<size_t>(q.tenant)].reserved += q.reserved_rows;
  }
  int32_t queued = 0;
  for (int32_t tenant = 0; tenant < tenants.slots(); ++tenant) {
    const Tenant& t = tenants.at(tenant);
    CHECK(t.sequences == seen[static_cast<size_t>(tenant)].sequences, "tenant {}", t.key);
    CHECK(t.reserved == seen[static_cast<size_t>(tenant)].reserved, "tenant {}", t.key);
    const int32_t queued_before = queued;
    int32_t before = kNone;
    for (int32_t slot = t.waiting_first; slot != kNone; slot = at(slot).after, ++queued) {
      const Sequence& q = at(slot);
      CHECK(q.phase == Phase::kWaiting && q.tenant == tenant && q.before == before);
      CHECK(before == kNone || at(before).order < q.order, "request {}", q.id.value);
      before = slot;
    }
    CHECK(t.waiting_last == before && t.waiting == queued - queued_before, "tenant {}", t.key);
  }
  CHECK(queued == stats.waiting);
}

// Every reference and hold in the pool is one of a sequence here.
void Scheduler::State::check_pages() const {
  const kv::PageCounts counts = pool.counts();
  std::vector<int32_t> references(static_cast<size_t>(counts.total), 0);
  for (const Sequence& q : sequences) {
    for (const PageId page : q.pages.references()) ++references[static_cast<size_t>(page.value)];
  }
  for (int32_t page = 0; page < counts.total; ++page) {
    CHECK(pool.references(PageId{page}) == references[static_cast<size_t>(page)], "page {}", page);
  }
  for (const auto& [id, held] : quarantined) {
    CHECK(find(id) == kNone, "request {}", id.value);
    for (const PageId page : held) {
      const kv::PageState state = pool.state(page);
      CHECK(state == kv::PageState::kQuarantined || state == kv::PageState::kReferenced,
            "page {} of request {}", page.value, id.value);
    }
  }
}

void Scheduler::State::check_all() const {
  PhaseCounts counts;
  int64_t prompt_rows_left = 0;
  for (size_t slot = 0; slot < sequences.size(); ++slot) {
    const Sequence& q = sequences[slot];
    count_phase(q.phase, counts);
    if (q.phase == Phase::kUnused) {
      CHECK(q.pages.pages().empty());
      continue;
    }
    check_sequence(static_cast<int32_t>(slot));
    if (settings.role != Role::kDecode) prompt_rows_left += q.prompt_unplanned();
  }
  CHECK(counts.waiting == stats.waiting && counts.reserved == stats.reserved &&
        counts.running == stats.running && counts.held == stats.held);
  CHECK(stats.waiting <= settings.waiting_max && admitted_count() <= settings.sequences_max);
  CHECK(prompt_rows_left == stats.prompt_rows_left, "{} {}", prompt_rows_left,
        stats.prompt_rows_left);
  CHECK(slot_of.size() + free_slots.size() == sequences.size());
  CHECK(static_cast<int32_t>(running.size()) == stats.running);
  for (const int32_t slot : running) CHECK(at(slot).phase == Phase::kRunning);
  CHECK(static_cast<int32_t>(quarantined.size()) == stats.quarantined);
  for (const auto& [hash, slot] : in_progress) {
    CHECK(at(slot).phase == Phase::kRunning || at(slot).phase == Phase::kReserved);
    CHECK(std::ranges::find(at(slot).hashes, hash) != at(slot).hashes.end());
  }
  check_tenants();
  check_pages();
}

void Scheduler::check_invariants() const {
  state_->check_all();
}

}  // namespace tandem::sched
