// SPDX-License-Identifier: Apache-2.0
#include "sched/fake_worker.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace tandem::sched {

uint64_t fake_kv(uint64_t before, int32_t token) {
  uint64_t x = before * 0x9e3779b97f4a7c15U + static_cast<uint32_t>(token) + 1;
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9U;
  return x ^ (x >> 29);
}

int32_t fake_next_token(uint64_t kv) {
  return static_cast<int32_t>((kv >> 20) % 3);
}

std::vector<uint64_t> fake_prefix(std::span<const int32_t> tokens) {
  std::vector<uint64_t> out;
  uint64_t hash = 0;
  for (const int32_t token : tokens) {
    hash = fake_kv(hash, token);
    out.push_back(hash);
  }
  return out;
}

FakeWorker::FakeWorker(const FakeSettings& settings)
    : settings_(settings),
      pool_({.page_count = settings.page_count, .group_floor_pages = settings.group_floor_pages}),
      cache_(pool_,
             {.page_tokens = settings.page_tokens, .secret = 1, .hash_bits = settings.hash_bits}),
      scheduler_(Scheduler::create(settings.sched, pool_, cache_).value()),
      kv_(static_cast<size_t>(settings.page_count * settings.page_tokens)) {}

Result<void> FakeWorker::add(SequenceSpec spec, int32_t stop_after) {
  TRY(scheduler_.add(spec));
  CHECK(!live_.contains(spec.id) && !ends_.contains(spec.id));
  const RequestId id = spec.id;
  live_[id] = {.spec = std::move(spec), .stop_after = stop_after};
  return {};
}

void FakeWorker::end(RequestId id, End::Kind kind) {
  const auto live = live_.find(id);
  CHECK(live != live_.end() && !ends_.contains(id), "request {} ends twice", id.value);
  CHECK(!scheduler_.knows(id));
  ends_[id] = {kind, std::move(live->second.output), steps_};
  live_.erase(live);
}

bool FakeWorker::cancel(RequestId id) {
  if (!scheduler_.cancel(id)) return false;
  std::erase(to_finish_, id);
  end(id, End::kCancelled);
  return true;
}

uint64_t& FakeWorker::kv(std::span<const PageId> pages, int32_t position) {
  const auto page = static_cast<size_t>(position / settings_.page_tokens);
  CHECK(page < pages.size(), "position {} of {} pages", position, pages.size());
  return kv_[static_cast<size_t>(pages[page].value * settings_.page_tokens +
                                 position % settings_.page_tokens)];
}

void FakeWorker::write_late(RequestId id, uint64_t value) {
  const Open& open = transfers_.at(id);
  for (auto page = static_cast<size_t>(open.cached_pages); page < open.pages.size(); ++page) {
    for (int32_t i = 0; i < settings_.page_tokens; ++i) {
      kv(open.pages, static_cast<int32_t>(page) * settings_.page_tokens + i) = value;
    }
  }
}

void FakeWorker::complete_transfer(RequestId id, bool verified) {
  const auto found = transfers_.find(id);
  CHECK(found != transfers_.end());
  const Open open = std::move(found->second);
  transfers_.erase(found);
  const auto live = live_.find(id);
  if (live == live_.end() || !verified) {
    scheduler_.transfer_closed(id);
    if (live != live_.end()) cancel(id);
    return;
  }
  const std::vector<uint64_t> prefix = fake_prefix(open.prompt);
  const auto prompt_tokens = static_cast<int32_t>(open.prompt.size());
  for (int32_t position = open.cached_pages * settings_.page_tokens; position < prompt_tokens;
       ++position) {
    kv(open.pages, position) = prefix[static_cast<size_t>(position)];
  }
  const int32_t first_token = fake_next_token(prefix.back());
  live->second.output.push_back(first_token);
  live->second.next_position = prompt_tokens;
  if (live->second.stop_after <= 1) {
    scheduler_.transfer_closed(id);
    scheduler_.finish(id);
    end(id, End::kFinished);
  } else {
    scheduler_.join(id, first_token);
  }
}

const Plan& FakeWorker::step(TimePoint now) {
  ++steps_;
  for (const RequestId id : std::exchange(to_finish_, {})) {
    scheduler_.finish(id);
    end(id, End::kFinished);
  }
  const Plan& plan = scheduler_.step(now);
  scheduler_.check_invariants();
  for (const Ended& ended : plan.ended) {
    CHECK(live_.at(ended.id).spec.deadline <= now);
    end(ended.id, End::kExpired);
  }
  for (const auto& [id, live] : live_) CHECK(now < live.spec.deadline);
  note_admissions(plan);
  check_plan(plan);
  for (const PlanRow& row : plan.rows) compute(row);
  return plan;
}

void FakeWorker::note_admissions(const Plan& plan) {
  for (const Admitted& admitted : plan.admitted) {
    Live& live = live_.at(admitted.id);
    CHECK(live.admitted_step < 0, "request {} is admitted twice", admitted.id.value);
    live.admitted_step = steps_;
    live.next_position = admitted.cached_tokens;
    CHECK(admitted.cached_tokens < static_cast<int32_t>(live.spec.prompt.size()));
    if (settings_.sched.role != Role::kDecode) continue;
    transfers_[admitted.id] = {live.spec.prompt,
                               {admitted.pages.begin(), admitted.pages.end()},
                               admitted.cached_tokens / settings_.page_tokens};
  }
}

void FakeWorker::check_plan(const Plan& plan) const {
  int32_t row_count = 0;
  bool prompts_began = false;
  for (const PlanRow& row : plan.rows) {
    const Live& live = live_.at(row.id);
    const auto prompt_tokens = static_cast<int32_t>(live.spec.prompt.size());
    const int32_t end = row.position_begin + row.row_count;
    row_count += row.row_count;
    CHECK(row.row_count > 0 && row.row_count == static_cast<int32_t>(row.tokens.size()));
    CHECK(row.position_begin == live.next_position, "request {} position {} expected {}",
          row.id.value, row.position_begin, live.next_position);
    CHECK(row.prompt == (row.position_begin < prompt_tokens));
    CHECK(row.prompt || !prompts_began, "a decode row stands behind a chunk");
    prompts_began = row.prompt;
    if (row.prompt) {
      CHECK(row.row_count <= settings_.sched.chunk_rows_max && end <= prompt_tokens);
      CHECK(end == prompt_tokens || end % settings_.page_tokens == 0, "chunk ends at {}", end);
      CHECK(row.samples == (end == prompt_tokens && live.spec.max_tokens > 0));
    } else {
      CHECK(row.row_count == 1 && row.samples);
    }
    CHECK(row.logit_begin == (live.spec.prompt_logits && row.prompt ? 0
                              : row.samples                         ? row.row_count - 1
                                                                    : row.row_count));
  }
  CHECK(row_count == plan.row_count && row_count <= settings_.sched.rows_max);
}

void FakeWorker::compute(const PlanRow& row) {
  const Live& live = live_.at(row.id);
  tenant_rows_[live.spec.tenant] += row.row_count;
  std::vector<int32_t> all = live.spec.prompt;
  all.insert(all.end(), live.output.begin(), live.output.end());
  const std::vector<uint64_t> prefix = fake_prefix(all);
  for (int32_t position = 0; position < row.position_begin; ++position) {
    CHECK(kv(row.pages, position) == prefix[static_cast<size_t>(position)],
          "request {} reads a wrong page at position {}", row.id.value, position);
  }
  uint64_t hash = row.position_begin == 0 ? 0 : kv(row.pages, row.position_begin - 1);
  for (int32_t i = 0; i < row.row_count; ++i) {
    CHECK(row.tokens[static_cast<size_t>(i)] == all[static_cast<size_t>(row.position_begin + i)]);
    hash = fake_kv(hash, row.tokens[static_cast<size_t>(i)]);
    kv(row.pages, row.position_begin + i) = hash;
  }
  after_row(row, hash);
}

void FakeWorker::after_row(const PlanRow& row, uint64_t last_kv) {
  const RequestId id = row.id;
  Live& live = live_.at(id);
  live.next_position += row.row_count;
  scheduler_.chunk_done(id);
  const bool prompt_done = live.next_position >= static_cast<int32_t>(live.spec.prompt.size());
  if (row.samples) live.output.push_back(fake_next_token(last_kv));
  const bool stops = static_cast<int32_t>(live.output.size()) >= live.stop_after;
  if (settings_.sched.role == Role::kPrefill) {
    if (prompt_done) to_finish_.push_back(id);  // at the next step: its pages are sent by then
  } else if (prompt_done && stops) {
    scheduler_.finish(id);
    end(id, End::kFinished);
  } else if (row.samples) {
    scheduler_.token_sampled(id, live.output.back());
  }
}

}  // namespace tandem::sched
