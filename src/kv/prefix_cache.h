// SPDX-License-Identifier: Apache-2.0
// Finds the pages that already hold the KV of a prompt's first tokens. sched/ calls it.
//
// A full page is known by its chain: the hash of the page before it and its own token ids, with
// the tenant's salt at the root. Hashes are XXH3-128 with a secret, and a hit counts only when the
// page before it is the same page and the token ids are equal, so neither chance nor an attacker
// who finds a collision gets another's KV. Salts share nothing: who doesn't know a salt can't
// measure whether a prefix is cached under it.
// Source: the chained block hashes follow vLLM's automatic prefix caching.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "kv/page_pool.h"

namespace tandem::kv {

struct PageHash {
  uint64_t low = 0, high = 0;
  friend bool operator==(const PageHash&, const PageHash&) = default;
};
struct PageHashHasher {
  size_t operator()(const PageHash& hash) const noexcept { return hash.low; }
};

struct PrefixCacheSettings {
  int32_t page_tokens = 64;
  uint64_t secret = 0;  // random per process, from app/
  // Tests set fewer, so that collisions happen.
  int32_t hash_bits = 128;
};

struct PrefixCacheStats {
  int64_t asked_tokens = 0, hit_tokens = 0;
  int64_t inserted_pages = 0, duplicate_pages = 0, evicted_pages = 0;
  int32_t pages = 0, salts = 0;  // now
};

class PrefixCache {
 public:
  // `pool` must outlive the cache; the cache becomes its on_evict.
  PrefixCache(PagePool& pool, const PrefixCacheSettings& settings);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  [[nodiscard]] int32_t page_tokens() const { return settings_.page_tokens; }

  // Appends the chain hashes of the full pages of tokens[hashes.size() * page_tokens ...]: what is
  // there already stays, so that a growing sequence hashes each token once.
  void hash_pages(std::span<const int32_t> tokens, uint64_t salt,
                  std::vector<PageHash>& hashes) const;

  // Pages from the start of `tokens` that are cached; never all tokens: at least the last one is
  // computed anew, since its logits are wanted. `hashes` as hash_pages() makes them of the same
  // tokens and salt. Takes no reference.
  [[nodiscard]] int32_t match_pages(std::span<const int32_t> tokens, uint64_t salt,
                                    std::span<const PageHash> hashes,
                                    std::vector<PageId>& out) const;
  // As match_pages, takes a reference to each page and counts the hit.
  int32_t acquire(std::span<const int32_t> tokens, uint64_t salt, std::span<const PageHash> hashes,
                  std::vector<PageId>& out);

  // Keeps `page`, which the caller references and has filled with page `page_idx` of `tokens`.
  // `parent` is what insert() or match gave for the page before (ignored at 0). Gives the page that
  // stands for this prefix: `page`, or an equal one that was there first; the caller has a
  // reference to that one too then, and releases it after its own page.
  PageId insert(std::span<const int32_t> tokens, uint64_t salt, std::span<const PageHash> hashes,
                int32_t page_idx, PageId parent, PageId page);

  [[nodiscard]] PrefixCacheStats stats() const;
  void check_invariants() const;  // walks everything: for tests

 private:
  static constexpr int32_t kEmpty = -1;

  struct Node {  // indexed by page id
    PageHash hash;
    int32_t parent = kEmpty;
    int32_t group = kEmpty;  // of its salt; kEmpty: the page isn't kept
    int32_t children = 0;
  };
  struct Salt {
    int32_t group = 0;
    int32_t pages = 0;
  };

  [[nodiscard]] std::span<const int32_t> stored(int32_t page) const;
  [[nodiscard]] int32_t group_of(uint64_t salt) const;  // kEmpty: nothing is kept under it
  [[nodiscard]] int32_t find(const PageHash& hash, int32_t group, int32_t parent,
                             std::span<const int32_t> tokens) const;
  [[nodiscard]] size_t home(const PageHash& hash) const { return hash.low & mask_; }
  void table_insert(int32_t page);
  void table_erase(int32_t page);
  void forget(PageId page);
  CacheGroup join_group(uint64_t salt);

  PagePool& pool_;
  PrefixCacheSettings settings_;
  std::array<std::byte, 192> secret_{};
  size_t mask_ = 0;
  std::vector<int32_t> table_;  // open addressing, linear probes: page ids
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;  // [page_count, page_tokens]
  std::unordered_map<uint64_t, Salt> salts_;
  std::vector<uint64_t> group_salts_;
  std::vector<int32_t> free_groups_;
  PrefixCacheStats stats_;
};

}  // namespace tandem::kv
