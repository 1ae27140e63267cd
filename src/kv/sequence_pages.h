// SPDX-License-Identifier: Apache-2.0
// The page table of one sequence: page i holds positions [i * page_tokens, (i+1) * page_tokens).
// sched/ has one per admitted sequence. Owns its references: gone when the object goes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "kv/page_pool.h"
#include "kv/prefix_cache.h"

namespace tandem::kv {

constexpr int32_t pages_for(int64_t tokens, int32_t page_tokens) {
  return static_cast<int32_t>((tokens + page_tokens - 1) / page_tokens);
}

class SequencePages {
 public:
  explicit SequencePages(PagePool& pool) : pool_(&pool) {}
  ~SequencePages() { release(); }
  SequencePages(SequencePages&& other) noexcept;
  SequencePages& operator=(SequencePages&& other) noexcept;

  // Starts with the cached pages of a prompt. The sequence must be empty. Gives how many.
  int32_t acquire_prefix(PrefixCache& cache, std::span<const int32_t> tokens, uint64_t salt,
                         std::span<const PageHash> hashes);
  // Grows to `page_count` pages, or changes nothing and says false: no room now.
  [[nodiscard]] bool grow(int32_t page_count);
  // Pages up to `full_pages` are filled: those that aren't yet in the cache go there.
  void insert_full(PrefixCache& cache, std::span<const int32_t> tokens, uint64_t salt,
                   std::span<const PageHash> hashes, int32_t full_pages);

  void release();  // last page first
  // Gives the pages up while a transfer may still touch them; release_held() gives them back.
  [[nodiscard]] std::vector<PageId> quarantine();

  [[nodiscard]] std::span<const PageId> pages() const { return pages_; }
  // Every reference this sequence holds, first page first.
  [[nodiscard]] std::vector<PageId> references() const;
  [[nodiscard]] int32_t inserted_pages() const { return static_cast<int32_t>(chain_.size()); }

 private:
  PagePool* pool_;
  std::vector<PageId> pages_;
  // The cache's page for each full page: mostly pages_[i] itself, else an equal page that another
  // sequence computed at the same time; a reference to it keeps the chain whole.
  std::vector<PageId> chain_;
};

// Ends what SequencePages::quarantine() began.
void release_held(PagePool& pool, std::span<const PageId> held);

}  // namespace tandem::kv
