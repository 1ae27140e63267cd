// SPDX-License-Identifier: Apache-2.0
#include "model/forward_batch.h"

#include <algorithm>
#include <cstring>

namespace tandem::model {
namespace {

Tensor take_i32(const Exec& exec, int64_t count) {
  return Tensor::dense(exec.scratch->take<int32_t>(count), DType::kI32, {count}, exec.device);
}

// Consecutive rows of one sequence that attend.
struct Run {
  const SequenceRows* sequence;
  int32_t offset, count;  // rows from the sequence's first
};

int64_t pages_of(const Run& run, const KvLayout& layout) {
  const int64_t tokens = int64_t{run.sequence->position_begin} + run.offset + run.count;
  return (tokens + layout.page_tokens - 1) / layout.page_tokens;
}

AttentionIndex index_runs(const Exec& exec, std::span<const Run> runs, const KvLayout& layout) {
  const auto count = static_cast<int64_t>(runs.size());
  int64_t page_count = 0;
  for (const Run& run : runs) page_count += pages_of(run, layout);
  AttentionIndex index{.seq_rows = take_i32(exec, count + 1),
                       .seq_positions = take_i32(exec, count),
                       .seq_pages = take_i32(exec, count + 1),
                       .page_ids = take_i32(exec, page_count)};
  auto* rows = index.seq_rows.as<int32_t>();
  auto* positions = index.seq_positions.as<int32_t>();
  auto* pages = index.seq_pages.as<int32_t>();
  auto* page_ids = index.page_ids.as<int32_t>();
  rows[0] = pages[0] = 0;
  for (const Run& run : runs) {
    *positions++ = run.sequence->position_begin + run.offset;
    rows[1] = rows[0] + run.count;
    const int64_t needed = pages_of(run, layout);
    for (int64_t i = 0; i < needed; ++i) {
      *page_ids++ = run.sequence->pages[static_cast<size_t>(i)].value;
    }
    pages[1] = pages[0] + static_cast<int32_t>(needed);
    ++rows;
    ++pages;
  }
  return index;
}

void check_batch(const Batch& batch, const KvLayout& layout) {
  int64_t row = 0;
  for (const SequenceRows& s : batch.sequences) {
    CHECK(s.row_begin == row && s.row_count >= 1 && s.position_begin >= 0,
          "sequence at row {}, wanted {}; {} rows at position {}", s.row_begin, row, s.row_count,
          s.position_begin);
    row += s.row_count;
    const int64_t covered = static_cast<int64_t>(s.pages.size()) * layout.page_tokens;
    CHECK(covered >= int64_t{s.position_begin} + s.row_count, "{} tokens in {} pages of {}",
          s.position_begin + s.row_count, s.pages.size(), layout.page_tokens);
  }
  CHECK(row == static_cast<int64_t>(batch.tokens.size()), "sequences cover {} of {} rows", row,
        batch.tokens.size());
  int32_t last = -1;
  for (const int32_t r : batch.logit_rows) {
    CHECK(last < r && r < row, "logit row {} after {}, {} rows", r, last, row);
    last = r;
  }
}

// Logit rows that follow each other within a sequence make one run. Both lists ascend.
std::span<const Run> wanted_runs(const Exec& exec, const Batch& batch) {
  Run* runs = exec.scratch->take<Run>(static_cast<int64_t>(batch.logit_rows.size()));
  size_t count = 0, s = 0;
  for (const int32_t row : batch.logit_rows) {
    while (row >= batch.sequences[s].row_begin + batch.sequences[s].row_count) ++s;
    const SequenceRows& sequence = batch.sequences[s];
    const int32_t offset = row - sequence.row_begin;
    Run* last = count > 0 ? &runs[count - 1] : nullptr;
    if (last != nullptr && last->sequence == &sequence && last->offset + last->count == offset) {
      ++last->count;
    } else {
      runs[count++] = {.sequence = &sequence, .offset = offset, .count = 1};
    }
  }
  return {runs, count};
}

}  // namespace

size_t index_batch_bytes(const ForwardLimits& limits) {
  const auto rows = static_cast<size_t>(limits.batch_rows_max);
  const auto page_tokens = static_cast<size_t>(limits.page_tokens);
  const size_t pages =
      (static_cast<size_t>(limits.context_tokens_max) + page_tokens - 1) / page_tokens;
  const size_t one_index = (3 * rows + 2 + rows * pages) * sizeof(int32_t) + rows * sizeof(Run);
  return 2 * rows * sizeof(int32_t) + 2 * one_index + 12 * 64;
}

BatchIndex index_batch(const Exec& exec, const Batch& batch, const KvLayout& layout) {
  check_batch(batch, layout);
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  BatchIndex index{.positions = take_i32(exec, rows), .slots = take_i32(exec, rows)};
  auto* positions = index.positions.as<int32_t>();
  auto* slots = index.slots.as<int32_t>();
  Run* runs = exec.scratch->take<Run>(static_cast<int64_t>(batch.sequences.size()));
  size_t run_count = 0;
  for (const SequenceRows& s : batch.sequences) {
    runs[run_count++] = {.sequence = &s, .offset = 0, .count = s.row_count};
    for (int32_t p = s.position_begin; p < s.position_begin + s.row_count; ++p) {
      const PageId page = s.pages[static_cast<size_t>(p / layout.page_tokens)];
      *positions++ = p;
      *slots++ = page.value * layout.page_tokens + p % layout.page_tokens;
    }
  }
  index.all = index_runs(exec, {runs, run_count}, layout);
  index.wanted = index_runs(exec, wanted_runs(exec, batch), layout);
  return index;
}

void gather_rows(const Exec& exec, Tensor x, std::span<const int32_t> rows, Tensor out) {
  const auto count = static_cast<int64_t>(rows.size());
  exec.parallel_for(count, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(static_cast<void*>(out.row<bf16>(i)), x.row<bf16>(rows[static_cast<size_t>(i)]),
                  static_cast<size_t>(x.size(1)) * sizeof(bf16));
    }
  });
}

}  // namespace tandem::model
