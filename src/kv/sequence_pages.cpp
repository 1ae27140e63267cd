// SPDX-License-Identifier: Apache-2.0
#include "kv/sequence_pages.h"

#include <utility>

#include "core/check.h"

namespace tandem::kv {

SequencePages::SequencePages(SequencePages&& other) noexcept
    : pool_(other.pool_),
      pages_(std::exchange(other.pages_, {})),
      chain_(std::exchange(other.chain_, {})) {}

SequencePages& SequencePages::operator=(SequencePages&& other) noexcept {
  if (this == &other) return *this;
  release();
  pool_ = other.pool_;
  pages_ = std::exchange(other.pages_, {});
  chain_ = std::exchange(other.chain_, {});
  return *this;
}

int32_t SequencePages::acquire_prefix(PrefixCache& cache, std::span<const int32_t> tokens,
                                      uint64_t salt, std::span<const PageHash> hashes) {
  CHECK(pages_.empty());
  const int32_t matched = cache.acquire(tokens, salt, hashes, pages_);
  chain_ = pages_;
  return matched;
}

bool SequencePages::grow(int32_t page_count) {
  const int32_t missing = page_count - static_cast<int32_t>(pages_.size());
  if (missing > 0 && !pool_->allocate(missing, pages_)) return false;
  chain_.reserve(pages_.size());
  return true;
}

void SequencePages::insert_full(PrefixCache& cache, std::span<const int32_t> tokens, uint64_t salt,
                                std::span<const PageHash> hashes, int32_t full_pages) {
  CHECK(full_pages <= static_cast<int32_t>(pages_.size()), "{} of {} pages", full_pages,
        pages_.size());
  while (inserted_pages() < full_pages) {
    const int32_t page_idx = inserted_pages();
    const PageId parent = page_idx == 0 ? PageId{} : chain_.back();
    chain_.push_back(cache.insert(tokens, salt, hashes, page_idx, parent,
                                  pages_[static_cast<size_t>(page_idx)]));
  }
}

void SequencePages::release() {
  while (!pages_.empty()) {
    const PageId page = pages_.back();
    if (chain_.size() == pages_.size()) {
      if (chain_.back() != page) pool_->release(chain_.back());
      chain_.pop_back();
    }
    pool_->release(page);
    pages_.pop_back();
  }
}

std::vector<PageId> SequencePages::references() const {
  std::vector<PageId> all;
  all.reserve(pages_.size());
  for (size_t i = 0; i < pages_.size(); ++i) {
    all.push_back(pages_[i]);
    if (i < chain_.size() && chain_[i] != pages_[i]) all.push_back(chain_[i]);
  }
  return all;
}

std::vector<PageId> SequencePages::quarantine() {
  std::vector<PageId> held = references();
  for (size_t i = held.size(); i-- > 0;) pool_->quarantine(held[i]);
  pages_.clear();
  chain_.clear();
  return held;
}

void release_held(PagePool& pool, std::span<const PageId> held) {
  for (size_t i = held.size(); i-- > 0;) pool.release_hold(held[i]);
}

}  // namespace tandem::kv
