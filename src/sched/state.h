// SPDX-License-Identifier: Apache-2.0
// The scheduler's inside: scheduler.cpp (events), admission.cpp and rows.cpp (the step) share it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/check.h"
#include "kv/sequence_pages.h"
#include "sched/scheduler.h"
#include "sched/tenants.h"

namespace tandem::sched {

//              add            admission                              prompt done (kPrefill)
//   (unused) ------> kWaiting ---------> kRunning ---------------------------------> kHeld
//                             ---------> kReserved (kDecode) --join--> kRunning
// finish, cancel and the deadline lead from every phase back to unused.
enum class Phase : uint8_t { kUnused, kWaiting, kReserved, kRunning, kHeld };

struct Sequence {
  explicit Sequence(kv::PagePool& pool) : pages(pool) {}

  Phase phase = Phase::kUnused;
  RequestId id{};
  std::vector<int32_t> tokens;       // prompt, then output
  std::vector<kv::PageHash> hashes;  // of the full pages of `tokens` that were hashed so far
  kv::SequencePages pages;
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t computed = 0;      // tokens whose KV is in the pages
  int32_t planned_rows = 0;  // of the last plan, until chunk_done
  uint64_t salt = 0;
  TimePoint deadline = TimePoint::max();
  bool prompt_logits = false;
  bool transfer_open = false;
  int32_t tenant = kNone;
  int64_t reserved_rows = 0;              // its part of Tenant::reserved
  uint64_t order = 0;                     // of arrival
  int32_t before = kNone, after = kNone;  // neighbours in the tenant's queue while waiting
  int32_t bypassed = 0;                   // admissions past it while it lacked pages
  bool twin_waited = false;               // twin_page and twin_since are set
  kv::PageHash twin_page{};               // the last page it shares with a running sequence
  TimePoint twin_since{};

  [[nodiscard]] int32_t output_tokens() const {
    return static_cast<int32_t>(tokens.size()) - prompt_tokens;
  }
  [[nodiscard]] int32_t prompt_left() const {
    return computed < prompt_tokens ? prompt_tokens - computed : 0;
  }
  // Rows of the prompt that no plan has had.
  [[nodiscard]] int32_t prompt_unplanned() const {
    return prompt_left() > 0 ? prompt_left() - planned_rows : 0;
  }
  // A sampled token waits to be computed, and more output is allowed.
  [[nodiscard]] bool wants_decode_row() const {
    return computed >= prompt_tokens && computed < static_cast<int32_t>(tokens.size()) &&
           output_tokens() < max_tokens;
  }
};

struct Scheduler::State {
  State(const Settings& settings_in, kv::PagePool& pool_in, kv::PrefixCache& cache_in);

  Settings settings;
  kv::PagePool& pool;
  kv::PrefixCache& cache;

  std::vector<Sequence> sequences;  // by slot; never grows
  std::vector<int32_t> free_slots;
  std::unordered_map<RequestId, int32_t> slot_of;
  std::vector<int32_t> running;  // kRunning, in order of admission (kDecode: of joining)
  std::unordered_map<RequestId, std::vector<PageId>> quarantined;
  // Full prompt pages that an admitted sequence has still to compute, and which.
  std::unordered_map<kv::PageHash, int32_t, kv::PageHashHasher> in_progress;
  std::vector<int32_t> overdue;  // waiting, bypassed bypass_max times, in the order of that
  Tenants tenants;
  TimePoint earliest_deadline = TimePoint::max();  // no sequence has an earlier one
  uint64_t next_order = 0;
  Plan plan;
  Stats stats;

  // Working memory of one step.
  struct Candidate {
    int64_t key = 0;     // of its tenant: the lowest goes first
    uint64_t order = 0;  // among equal keys
    int32_t tenant = kNone;
    int32_t slot = kNone;
  };
  // Orders a standard heap so that the candidate that goes first is on top.
  static constexpr auto kGoesLater = [](const Candidate& a, const Candidate& b) {
    return a.key != b.key ? a.key > b.key : a.order > b.order;
  };
  std::vector<Candidate> heap;
  std::vector<int32_t> blocked;
  std::vector<PageId> matched;

  [[nodiscard]] Sequence& at(int32_t slot) { return sequences[static_cast<size_t>(slot)]; }
  [[nodiscard]] const Sequence& at(int32_t slot) const {
    return sequences[static_cast<size_t>(slot)];
  }
  [[nodiscard]] int32_t find(RequestId id) const;    // kNone: unknown
  [[nodiscard]] int32_t expect(RequestId id) const;  // CHECKs that it is known
  [[nodiscard]] int32_t admitted_count() const {
    return stats.reserved + stats.running + stats.held;
  }
  [[nodiscard]] int64_t worst_case_positions(int64_t prompt_tokens, int64_t max_tokens) const;
  [[nodiscard]] int32_t worst_case_pages(const Sequence& sequence) const;
  int32_t& count_of(Phase phase);
  void set_phase(Sequence& sequence, Phase phase);
  void count_prompt_rows_left(int64_t rows) {  // a decoder computes no prompts
    if (settings.role != Role::kDecode) stats.prompt_rows_left += rows;
  }

  // scheduler.cpp
  [[nodiscard]] Result<void> check_fits(const SequenceSpec& spec) const;
  void insert_full_pages(int32_t slot);
  void end(int32_t slot);
  void expire(TimePoint now);

  // admission.cpp
  void admit_waiting(TimePoint now);
  void enqueue(int32_t slot);
  void dequeue(int32_t slot);
  enum class Verdict : uint8_t { kAdmitted, kTwin, kBlocked };
  Verdict try_admit(int32_t slot, TimePoint now, bool may_wait_for_twin);
  [[nodiscard]] bool waits_for_twin(Sequence& sequence, int32_t matched_pages, TimePoint now);
  void admit(int32_t slot);
  void push_candidate(int32_t tenant, int32_t slot);
  void count_bypass();
  void release_in_progress(int32_t slot, int32_t page_begin, int32_t page_end);

  // rows.cpp
  void plan_decode_rows();
  void plan_prompt_rows();
  void plan_rows(int32_t slot, int32_t row_count);

  // invariants.cpp
  void check_sequence(int32_t slot) const;
  void check_tenants() const;
  void check_pages() const;
  void check_all() const;
};

}  // namespace tandem::sched
