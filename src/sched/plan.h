// SPDX-License-Identifier: Apache-2.0
// What goes into the scheduler and what comes out: plain data. engine/ and plan/ use it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"

namespace tandem::sched {

// kPrefill  computes prompts in chunks; a sequence stays, without rows, until finish()
// kDecode   reserves pages, waits for join() (the KV came from a prefiller), then decodes
// kWhole    both in one
enum class Role : uint8_t { kPrefill, kDecode, kWhole };

struct Settings {
  Role role = Role::kWhole;
  int32_t rows_max = 2048;            // rows (tokens) of one step
  int32_t chunk_rows_max = 512;       // rows of one prompt in one step
  int32_t sequences_max = 256;        // admitted: with pages, until they end
  int32_t waiting_max = 1024;         // not yet admitted
  int32_t tenant_waiting_max = 512;   // of these, one tenant's: no one fills the line
  int32_t context_tokens_max = 4096;  // prompt + output
  bool prefix_cache = true;
  int32_t bypass_max = 32;   // admissions past a request that lacks pages, then it goes next
  int32_t blocked_max = 16;  // requests that one step tries in vain before it stops admitting
  Duration twin_wait_max = std::chrono::seconds(10);
};

struct SequenceSpec {
  RequestId id;                 // not in use
  std::vector<int32_t> prompt;  // >= 1 token
  int32_t max_tokens = 1;       // output; 0 only with prompt_logits
  uint64_t salt = 0;            // prefix pages are shared only between equal salts
  uint64_t tenant = 0;          // fairness key
  TimePoint deadline = TimePoint::max();
  bool prompt_logits = false;  // every prompt row's logits are wanted, so none comes from the cache
};

// Consecutive rows of one sequence in one step. Spans stay valid until the next step() or the
// end of this sequence.
struct PlanRow {
  RequestId id;
  int32_t position_begin = 0;  // tokens whose KV is in the pages already
  int32_t row_count = 0;
  std::span<const int32_t> tokens;  // [row_count] input ids
  std::span<const PageId> pages;    // all pages of the sequence
  int32_t logit_begin = 0;          // logits are wanted of rows [logit_begin, row_count)
  bool prompt = false;              // a prompt chunk: ends at a page's or at the prompt's end
  bool samples = false;             // the last row's logits give the next output token
};

enum class EndReason : uint8_t { kDeadline };

struct Ended {
  RequestId id;
  EndReason reason;
};

struct Admitted {
  RequestId id;
  int32_t cached_tokens = 0;      // positions whose KV came from the prefix cache
  std::span<const PageId> pages;  // prompt and, unless the role is kPrefill, worst-case output
};

struct Plan {
  std::vector<PlanRow> rows;  // decode rows first, then prompt chunks
  int32_t row_count = 0;      // sum over rows; <= rows_max
  std::vector<Admitted> admitted;
  std::vector<Ended> ended;  // sequences the scheduler gave up in this step; it knows them no more
};

struct Stats {
  int32_t waiting = 0;       // not admitted
  int32_t twin_waiting = 0;  // of these: for a prefix that is being computed, at the last step
  int32_t reserved = 0;      // kDecode: pages reserved, KV under way
  int32_t running = 0;       // with rows to compute or a token to be sampled
  int32_t held = 0;          // kPrefill: prompt done, pages still being sent
  int32_t quarantined = 0;   // ended with a transfer open
  int32_t tenants = 0;
  int64_t steps = 0, rows = 0, prompt_rows = 0;
  int64_t added = 0, refused = 0, admitted = 0, finished = 0, cancelled = 0, expired = 0;
  int64_t prefix_asked_tokens = 0, prefix_hit_tokens = 0;
  int64_t prompt_rows_left = 0;  // not yet planned: what a new prompt waits for; 0 in kDecode
  int64_t bypasses = 0;          // admissions past an older request that lacked pages
  int32_t rows_last = 0;
};

}  // namespace tandem::sched
