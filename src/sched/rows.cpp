// SPDX-License-Identifier: Apache-2.0
// Which rows the next step computes.
#include <algorithm>

#include "sched/state.h"

namespace tandem::sched {

// One row for every sequence that has a sampled token: settings make sure that all fit.
void Scheduler::State::plan_decode_rows() {
  for (const int32_t slot : running) {
    if (at(slot).wants_decode_row()) plan_rows(slot, 1);
  }
}

// The rest of the budget goes to prompts: of the tenant that was served least, the one admitted
// first; as long a chunk as may be, then the next.
void Scheduler::State::plan_prompt_rows() {
  heap.clear();
  for (size_t i = 0; i < running.size(); ++i) {
    const Sequence& sequence = at(running[i]);
    if (sequence.prompt_left() == 0) continue;
    heap.push_back({tenants.at(sequence.tenant).served, i, sequence.tenant, running[i]});
  }
  std::ranges::make_heap(heap, kGoesLater);
  const int32_t page_tokens = cache.page_tokens();
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, kGoesLater);
    const int64_t served = tenants.at(heap.back().tenant).served;
    if (served > heap.back().key) {  // its tenant got a chunk since it was pushed
      heap.back().key = served;
      std::ranges::push_heap(heap, kGoesLater);
      continue;
    }
    const int32_t slot = heap.back().slot;
    heap.pop_back();
    const Sequence& sequence = at(slot);
    int32_t row_count = std::min(
        {sequence.prompt_left(), settings.chunk_rows_max, settings.rows_max - plan.row_count});
    // A chunk ends with a page, so that every page is filled, sent and cached once.
    if (row_count < sequence.prompt_left()) {
      row_count = (sequence.computed + row_count) / page_tokens * page_tokens - sequence.computed;
    }
    if (row_count <= 0) return;  // less than a page is left of the budget
    plan_rows(slot, row_count);
  }
}

void Scheduler::State::plan_rows(int32_t slot, int32_t row_count) {
  Sequence& sequence = at(slot);
  const bool prompt = sequence.prompt_left() > 0;
  const bool last = row_count >= sequence.prompt_left();
  const bool samples = last && sequence.max_tokens > 0;
  PlanRow row{.id = sequence.id,
              .position_begin = sequence.computed,
              .row_count = row_count,
              .tokens = std::span(sequence.tokens)
                            .subspan(static_cast<size_t>(sequence.computed),
                                     static_cast<size_t>(row_count)),
              .pages = sequence.pages.pages(),
              .logit_begin = samples ? row_count - 1 : row_count,
              .prompt = prompt,
              .samples = samples};
  if (prompt && sequence.prompt_logits) row.logit_begin = 0;
  plan.rows.push_back(row);
  plan.row_count += row_count;
  CHECK(plan.row_count <= settings.rows_max, "rows {}", plan.row_count);
  sequence.planned_rows = row_count;
  sequence.reserved_rows -= row_count;
  Tenant& tenant = tenants.at(sequence.tenant);
  tenant.reserved -= row_count;
  tenant.served += row_count;
  stats.rows += row_count;
  if (prompt) {
    stats.prompt_rows += row_count;
    stats.prompt_rows_left -= row_count;
  }
}

}  // namespace tandem::sched
