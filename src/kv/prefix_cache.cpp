// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix_cache.h"

#define XXH_STATIC_LINKING_ONLY  // XXH3_generateSecret_fromSeed
#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace tandem::kv {
namespace {

std::span<const int32_t> page_of(std::span<const int32_t> tokens, int32_t page_idx,
                                 int32_t page_tokens) {
  return tokens.subspan(static_cast<size_t>(page_idx) * static_cast<size_t>(page_tokens),
                        static_cast<size_t>(page_tokens));
}

}  // namespace

PrefixCache::PrefixCache(PagePool& pool, const PrefixCacheSettings& settings)
    : pool_(pool), settings_(settings) {
  CHECK(settings.page_tokens > 0 && settings.hash_bits >= 0 && settings.hash_bits <= 128,
        "page_tokens {} hash_bits {}", settings.page_tokens, settings.hash_bits);
  static_assert(sizeof(secret_) == XXH3_SECRET_DEFAULT_SIZE);
  XXH3_generateSecret_fromSeed(secret_.data(), settings.secret);
  const auto page_count = static_cast<size_t>(pool.counts().total);
  table_.assign(std::bit_ceil(page_count * 2), kEmpty);
  mask_ = table_.size() - 1;
  nodes_.resize(page_count);
  tokens_.resize(page_count * static_cast<size_t>(settings.page_tokens));
  pool.on_evict([this](PageId page) { forget(page); });
}

void PrefixCache::hash_pages(std::span<const int32_t> tokens, uint64_t salt,
                             std::vector<PageHash>& hashes) const {
  const size_t full_pages = tokens.size() / static_cast<size_t>(settings_.page_tokens);
  while (hashes.size() < full_pages) {
    const auto page = page_of(tokens, static_cast<int32_t>(hashes.size()), settings_.page_tokens);
    const XXH128_hash_t own =
        XXH3_128bits_withSecret(page.data(), page.size_bytes(), secret_.data(), secret_.size());
    const PageHash parent = hashes.empty() ? PageHash{salt, 0} : hashes.back();
    const std::array<uint64_t, 5> link = {hashes.empty() ? 0U : 1U, parent.low, parent.high,
                                          own.low64, own.high64};
    const XXH128_hash_t chained =
        XXH3_128bits_withSecret(link.data(), sizeof(link), secret_.data(), secret_.size());
    PageHash hash{chained.low64, chained.high64};
    if (settings_.hash_bits < 64) {
      hash = {hash.low & ((uint64_t{1} << settings_.hash_bits) - 1), 0};
    } else if (settings_.hash_bits < 128) {
      hash.high &= (uint64_t{1} << (settings_.hash_bits - 64)) - 1;
    }
    hashes.push_back(hash);
  }
}

std::span<const int32_t> PrefixCache::stored(int32_t page) const {
  return page_of(tokens_, page, settings_.page_tokens);
}

int32_t PrefixCache::group_of(uint64_t salt) const {
  const auto found = salts_.find(salt);
  return found == salts_.end() ? kEmpty : found->second.group;
}

int32_t PrefixCache::find(const PageHash& hash, int32_t group, int32_t parent,
                          std::span<const int32_t> tokens) const {
  for (size_t slot = home(hash); table_[slot] != kEmpty; slot = (slot + 1) & mask_) {
    const int32_t page = table_[slot];
    const Node& node = nodes_[static_cast<size_t>(page)];
    if (node.hash == hash && node.group == group && node.parent == parent &&
        std::ranges::equal(stored(page), tokens)) {
      return page;
    }
  }
  return kEmpty;
}

int32_t PrefixCache::match_pages(std::span<const int32_t> tokens, uint64_t salt,
                                 std::span<const PageHash> hashes, std::vector<PageId>& out) const {
  const int32_t group = group_of(salt);
  if (group == kEmpty || tokens.empty()) return 0;
  const size_t pages_max =
      std::min(hashes.size(), (tokens.size() - 1) / static_cast<size_t>(settings_.page_tokens));
  int32_t parent = kEmpty;
  int32_t matched = 0;
  for (size_t i = 0; i < pages_max; ++i, ++matched) {
    const auto page = page_of(tokens, static_cast<int32_t>(i), settings_.page_tokens);
    parent = find(hashes[i], group, parent, page);
    if (parent == kEmpty) break;
    out.push_back(PageId{parent});
  }
  return matched;
}

int32_t PrefixCache::acquire(std::span<const int32_t> tokens, uint64_t salt,
                             std::span<const PageHash> hashes, std::vector<PageId>& out) {
  const size_t before = out.size();
  const int32_t matched = match_pages(tokens, salt, hashes, out);
  for (size_t i = before; i < out.size(); ++i) pool_.retain(out[i]);
  stats_.asked_tokens += static_cast<int64_t>(tokens.size());
  stats_.hit_tokens += int64_t{matched} * settings_.page_tokens;
  return matched;
}

PageId PrefixCache::insert(std::span<const int32_t> tokens, uint64_t salt,
                           std::span<const PageHash> hashes, int32_t page_idx, PageId parent,
                           PageId page) {
  const auto own = page_of(tokens, page_idx, settings_.page_tokens);
  const PageHash hash = hashes[static_cast<size_t>(page_idx)];
  const int32_t parent_page = page_idx == 0 ? kEmpty : parent.value;
  CHECK(parent_page == kEmpty || nodes_[static_cast<size_t>(parent_page)].group == group_of(salt),
        "parent {} isn't kept under this salt", parent_page);
  const int32_t present = find(hash, group_of(salt), parent_page, own);
  if (present != kEmpty) {
    pool_.retain(PageId{present});
    ++stats_.duplicate_pages;
    return PageId{present};
  }
  const CacheGroup group = join_group(salt);
  pool_.keep(page, group);
  nodes_[static_cast<size_t>(page.value)] = {.hash = hash, .parent = parent_page, .group = group};
  if (parent_page != kEmpty) ++nodes_[static_cast<size_t>(parent_page)].children;
  std::ranges::copy(own, tokens_.begin() + int64_t{page.value} * settings_.page_tokens);
  table_insert(page.value);
  ++stats_.inserted_pages;
  ++stats_.pages;
  return page;
}

CacheGroup PrefixCache::join_group(uint64_t salt) {
  const auto [entry, is_new] = salts_.try_emplace(salt);
  if (is_new) {
    if (free_groups_.empty()) {
      entry->second.group = static_cast<CacheGroup>(group_salts_.size());
      group_salts_.push_back(salt);
    } else {
      entry->second.group = free_groups_.back();
      free_groups_.pop_back();
      group_salts_[static_cast<size_t>(entry->second.group)] = salt;
    }
  }
  ++entry->second.pages;
  return entry->second.group;
}

void PrefixCache::forget(PageId page) {
  Node& node = nodes_[static_cast<size_t>(page.value)];
  CHECK(node.group != kEmpty, "page {} isn't kept", page.value);
  CHECK(node.children == 0, "page {} has {} successors", page.value, node.children);
  table_erase(page.value);
  if (node.parent != kEmpty) --nodes_[static_cast<size_t>(node.parent)].children;
  const auto salt = salts_.find(group_salts_[static_cast<size_t>(node.group)]);
  if (--salt->second.pages == 0) {
    free_groups_.push_back(node.group);
    salts_.erase(salt);
  }
  node = {};
  ++stats_.evicted_pages;
  --stats_.pages;
}

void PrefixCache::table_insert(int32_t page) {
  size_t slot = home(nodes_[static_cast<size_t>(page)].hash);
  while (table_[slot] != kEmpty) slot = (slot + 1) & mask_;
  table_[slot] = page;
}

// Closes the gap by moving back every later entry of the run that may stand there (Knuth, The Art
// of Computer Programming, vol. 3, section 6.4, algorithm R), so no tombstones pile up.
void PrefixCache::table_erase(int32_t page) {
  size_t gap = home(nodes_[static_cast<size_t>(page)].hash);
  while (table_[gap] != page) {
    CHECK(table_[gap] != kEmpty, "page {} isn't in the table", page);
    gap = (gap + 1) & mask_;
  }
  for (size_t next = (gap + 1) & mask_; table_[next] != kEmpty; next = (next + 1) & mask_) {
    const size_t wanted = home(nodes_[static_cast<size_t>(table_[next])].hash);
    if (((next - wanted) & mask_) < ((next - gap) & mask_)) continue;
    table_[gap] = table_[next];
    gap = next;
  }
  table_[gap] = kEmpty;
}

PrefixCacheStats PrefixCache::stats() const {
  PrefixCacheStats stats = stats_;
  stats.salts = static_cast<int32_t>(salts_.size());
  return stats;
}

void PrefixCache::check_invariants() const {
  std::vector<int32_t> children(nodes_.size(), 0);
  std::unordered_map<int32_t, int32_t> group_pages;
  int32_t kept = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const PageId page{static_cast<int32_t>(i)};
    CHECK(pool_.kept(page) == (node.group != kEmpty), "page {}", i);
    if (node.group == kEmpty) continue;
    ++kept;
    ++group_pages[node.group];
    CHECK(find(node.hash, node.group, node.parent, stored(page.value)) == page.value,
          "page {} can't be found, or twice", i);
    if (node.parent == kEmpty) continue;
    CHECK(nodes_[static_cast<size_t>(node.parent)].group == node.group, "page {}", i);
    ++children[static_cast<size_t>(node.parent)];
    // Nobody can use a page without the pages before it, and eviction relies on it.
    CHECK(pool_.state(page) == PageState::kCached ||
              pool_.state(PageId{node.parent}) != PageState::kCached,
          "page {} is in use, its parent {} isn't", i, node.parent);
  }
  for (size_t i = 0; i < nodes_.size(); ++i) CHECK(nodes_[i].children == children[i], "page {}", i);
  CHECK(kept == stats_.pages);
  CHECK(group_pages.size() == salts_.size());
  for (const auto& [salt, entry] : salts_) {
    CHECK(group_pages[entry.group] == entry.pages &&
          group_salts_[static_cast<size_t>(entry.group)] == salt);
  }
}

}  // namespace tandem::kv
