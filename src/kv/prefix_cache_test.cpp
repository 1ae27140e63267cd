// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/rng.h"
#include "kv/sequence_pages.h"

namespace tandem::kv {
namespace {

constexpr int32_t kPageTokens = 4;

struct Fixture {
  explicit Fixture(int32_t page_count, int32_t hash_bits = 128, int32_t floor = 0)
      : pool({.page_count = page_count, .group_floor_pages = floor}),
        cache(pool, {.page_tokens = kPageTokens, .secret = 7, .hash_bits = hash_bits}) {}

  [[nodiscard]] std::vector<PageHash> hashes(const std::vector<int32_t>& tokens,
                                             uint64_t salt) const {
    std::vector<PageHash> out;
    cache.hash_pages(tokens, salt, out);
    return out;
  }
  int32_t match(const std::vector<int32_t>& tokens, uint64_t salt) const {
    std::vector<PageId> pages;
    return cache.match_pages(tokens, salt, hashes(tokens, salt), pages);
  }
  // Runs a sequence to its end: all its full pages are cached afterwards.
  void run(const std::vector<int32_t>& tokens, uint64_t salt) {
    SequencePages pages(pool);
    const auto chain = hashes(tokens, salt);
    pages.acquire_prefix(cache, tokens, salt, chain);
    ASSERT_TRUE(pages.grow(pages_for(static_cast<int64_t>(tokens.size()), kPageTokens)));
    pages.insert_full(cache, tokens, salt, chain, static_cast<int32_t>(chain.size()));
  }

  PagePool pool;
  PrefixCache cache;
};

std::vector<int32_t> iota(int32_t count, int32_t first = 0) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = first + i;
  return out;
}

TEST(PrefixCache, MatchesFullPagesOnlyAndNeverTheWholePrompt) {
  Fixture f(16);
  f.run(iota(10), 1);  // two full pages and a half
  EXPECT_EQ(f.match(iota(10), 1), 2);
  EXPECT_EQ(f.match(iota(9), 1), 2);
  EXPECT_EQ(f.match(iota(8), 1), 1) << "the last token must be computed for its logits";
  EXPECT_EQ(f.match(iota(5), 1), 1);
  EXPECT_EQ(f.match(iota(4), 1), 0);
  EXPECT_EQ(f.match({}, 1), 0);
  auto other = iota(10);
  other[5] = 99;
  EXPECT_EQ(f.match(other, 1), 1);
  other[0] = 99;
  EXPECT_EQ(f.match(other, 1), 0);
}

TEST(PrefixCache, EqualPagesBehindDifferentPrefixesAreDifferent) {
  Fixture f(16);
  std::vector<int32_t> repeated(12, 5);
  f.run(repeated, 1);
  EXPECT_EQ(f.match(std::vector<int32_t>(13, 5), 1), 3);
  std::vector<int32_t> shifted(13, 5);
  shifted[0] = 6;
  EXPECT_EQ(f.match(shifted, 1), 0);
}

TEST(PrefixCache, SaltsShareNothing) {
  Fixture f(16);
  f.run(iota(8), 1);
  EXPECT_EQ(f.match(iota(9), 2), 0);
  f.run(iota(8), 2);
  EXPECT_EQ(f.cache.stats().pages, 4);
  EXPECT_EQ(f.cache.stats().salts, 2);
  EXPECT_NE(f.hashes(iota(8), 1), f.hashes(iota(8), 2));
}

TEST(PrefixCache, TheSecretChangesTheHashes) {
  PagePool pool_a({.page_count = 1});
  PagePool pool_b({.page_count = 1});
  const PrefixCache a(pool_a, {.page_tokens = kPageTokens, .secret = 1});
  const PrefixCache b(pool_b, {.page_tokens = kPageTokens, .secret = 2});
  std::vector<PageHash> hashes_a;
  std::vector<PageHash> hashes_b;
  a.hash_pages(iota(8), 0, hashes_a);
  b.hash_pages(iota(8), 0, hashes_b);
  EXPECT_NE(hashes_a[0], hashes_b[0]);
  EXPECT_NE(hashes_a[1], hashes_b[1]);
}

TEST(PrefixCache, HashesOfAGrowingSequenceEqualThoseOfTheWhole) {
  const Fixture f(1);
  const auto tokens = iota(23);
  std::vector<PageHash> grown;
  for (size_t length = 0; length <= tokens.size(); ++length) {
    f.cache.hash_pages(std::span(tokens).first(length), 3, grown);
    EXPECT_EQ(grown.size(), length / kPageTokens);
  }
  EXPECT_EQ(grown, f.hashes(tokens, 3));
}

TEST(PrefixCache, EveryHashCollidesAndStillOnlyEqualTokensMatch) {
  Fixture f(64, /*hash_bits=*/0);
  f.run(iota(16), 1);
  f.run(iota(16, 100), 1);
  f.run(iota(16), 2);
  EXPECT_EQ(f.cache.stats().pages, 12);
  EXPECT_EQ(f.match(iota(17), 1), 4);
  EXPECT_EQ(f.match(iota(17, 100), 1), 4);
  EXPECT_EQ(f.match(iota(17, 200), 1), 0);
  EXPECT_EQ(f.match(iota(17, 100), 2), 0);
  f.cache.check_invariants();
}

TEST(PrefixCache, EvictsTheEndOfAPrefixBeforeItsBeginning) {
  Fixture f(4);
  f.run(iota(16), 1);
  EXPECT_EQ(f.match(iota(17), 1), 4);
  for (int32_t left = 3; left >= 0; --left) {
    std::vector<PageId> taken;
    ASSERT_TRUE(f.pool.allocate(4 - left, taken));
    EXPECT_EQ(f.match(iota(17), 1), left);
    for (const PageId page : taken) f.pool.release(page);
    f.cache.check_invariants();
  }
  EXPECT_EQ(f.cache.stats().salts, 0);
}

TEST(PrefixCache, TwinsKeepOneCopyAndBothChainsStayWhole) {
  Fixture f(8);
  const auto tokens_a = iota(12);
  auto tokens_b = iota(12);
  tokens_b[11] = 99;  // the third page differs
  const auto hashes_a = f.hashes(tokens_a, 1);
  const auto hashes_b = f.hashes(tokens_b, 1);
  SequencePages a(f.pool);
  SequencePages b(f.pool);
  ASSERT_TRUE(a.grow(3) && b.grow(3));
  a.insert_full(f.cache, tokens_a, 1, hashes_a, 2);
  b.insert_full(f.cache, tokens_b, 1, hashes_b, 3);
  EXPECT_EQ(f.cache.stats().duplicate_pages, 2);
  a.release();
  f.cache.check_invariants();
  EXPECT_EQ(f.pool.counts(), (PageCounts{.total = 8, .free = 3, .referenced = 5}))
      << "b holds the first copies of the two pages before its third";
  b.release();
  f.cache.check_invariants();
  EXPECT_EQ(f.pool.counts(), (PageCounts{.total = 8, .free = 5, .cached = 3}));
  EXPECT_EQ(f.match({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 99, 7}, 1), 3);
}

TEST(PrefixCache, CountsWhatWasAskedAndHit) {
  Fixture f(8);
  f.run(iota(10), 1);
  f.run(iota(10), 1);
  EXPECT_EQ(f.cache.stats().asked_tokens, 20);
  EXPECT_EQ(f.cache.stats().hit_tokens, 8);
}

// The cache, said again as a map from a salted prefix to the page that stands for it.
class CacheAgainstModel {
 public:
  CacheAgainstModel(uint64_t seed, int32_t page_count, int32_t hash_bits, int32_t floor)
      : rng_(seed), f_(page_count, hash_bits, floor), content_(static_cast<size_t>(page_count)) {}

  void operate() {
    const uint64_t choice = rng_.below(10);
    if (choice < 3 || live_.empty()) {
      start();
    } else if (choice < 7) {
      advance(live_[rng_.below(live_.size())]);
    } else if (choice < 9 || held_.size() > 2) {
      end(rng_.below(live_.size()), false);
    } else {
      end(rng_.below(live_.size()), true);
    }
    if (!held_.empty() && rng_.below(4) == 0) {
      release_held(f_.pool, held_.front());
      held_.erase(held_.begin());
    }
    f_.pool.check_invariants();
    f_.cache.check_invariants();
  }

  void drain() {
    while (!live_.empty()) end(live_.size() - 1, false);
    for (const auto& held : held_) release_held(f_.pool, held);
    held_.clear();
    const PageCounts counts = f_.pool.counts();
    EXPECT_EQ(counts.referenced + counts.quarantined, 0);
    EXPECT_EQ(counts.free + counts.cached, counts.total);
    EXPECT_EQ(f_.cache.stats().pages, static_cast<int32_t>(model_.size()));
  }

  [[nodiscard]] PrefixCacheStats stats() const { return f_.cache.stats(); }

 private:
  using Key = std::pair<uint64_t, std::vector<int32_t>>;  // salt, all tokens up to the page's end
  struct Live {
    std::vector<int32_t> tokens;
    uint64_t salt = 0;
    std::vector<PageHash> hashes;
    SequencePages pages;
    int32_t filled = 0;  // pages
  };

  static Key key_of(const Live& s, int32_t page_idx) {
    return {s.salt, {s.tokens.begin(), s.tokens.begin() + (page_idx + 1) * kPageTokens}};
  }

  // After an allocation: pages that the model had cached and that now belong to the sequence were
  // evicted, each with nothing kept behind it.
  void note_evictions(std::span<const PageId> fresh) {
    for (const PageId page : fresh) {
      const auto known =
          std::ranges::find_if(model_, [&](const auto& entry) { return entry.second == page; });
      if (known != model_.end()) model_.erase(known);
      content_[static_cast<size_t>(page.value)] = {};
    }
    for (const auto& [key, page] : model_) {
      if (key.second.size() == kPageTokens) continue;
      Key before = key;
      before.second.resize(before.second.size() - kPageTokens);
      ASSERT_TRUE(model_.contains(before)) << "page " << page.value << " lost its prefix";
    }
  }

  void start() {
    Live s{.salt = rng_.below(3), .pages = SequencePages(f_.pool)};
    const auto length = static_cast<size_t>(rng_.between(1, 5 * kPageTokens));
    for (size_t i = 0; i < length; ++i) {
      s.tokens.push_back(static_cast<int32_t>(i % kPageTokens == 0 ? rng_.below(2) : 0));
    }
    f_.cache.hash_pages(s.tokens, s.salt, s.hashes);
    const int32_t matched = s.pages.acquire_prefix(f_.cache, s.tokens, s.salt, s.hashes);
    int32_t expected = 0;
    const auto usable = static_cast<int32_t>((length - 1) / kPageTokens);
    while (expected < usable && model_.contains(key_of(s, expected))) ++expected;
    ASSERT_EQ(matched, expected);
    for (int32_t i = 0; i < matched; ++i) {
      const PageId page = s.pages.pages()[static_cast<size_t>(i)];
      ASSERT_EQ(page, model_.at(key_of(s, i)));
      ASSERT_EQ(content_[static_cast<size_t>(page.value)], key_of(s, i)) << "another's KV";
    }
    const int32_t available = f_.pool.available();
    const int32_t total = pages_for(static_cast<int64_t>(length), kPageTokens);
    const bool grown = s.pages.grow(total);
    ASSERT_EQ(grown, total - matched <= available);
    if (!grown) return;  // gives its references back
    note_evictions(s.pages.pages().subspan(static_cast<size_t>(matched)));
    s.filled = matched;
    live_.push_back(std::move(s));
  }

  // Fills a few more pages, or appends output.
  void advance(Live& s) {
    const auto full = static_cast<int32_t>(s.tokens.size()) / kPageTokens;
    if (s.filled == full) {
      const auto before = s.pages.pages().size();
      s.tokens.push_back(static_cast<int32_t>(rng_.below(2)));
      const bool grown =
          s.pages.grow(pages_for(static_cast<int64_t>(s.tokens.size()), kPageTokens));
      if (!grown) s.tokens.pop_back();
      note_evictions(s.pages.pages().subspan(before));
      return;
    }
    const auto upto = static_cast<int32_t>(rng_.between(s.filled + 1, full));
    f_.cache.hash_pages(s.tokens, s.salt, s.hashes);
    for (; s.filled < upto; ++s.filled) {
      const PageId page = s.pages.pages()[static_cast<size_t>(s.filled)];
      content_[static_cast<size_t>(page.value)] = key_of(s, s.filled);
      model_.try_emplace(key_of(s, s.filled), page);  // the first copy stays
    }
    s.pages.insert_full(f_.cache, s.tokens, s.salt, s.hashes, upto);
    for (int32_t i = 0; i < upto; ++i) {
      ASSERT_TRUE(model_.contains(key_of(s, i))) << "its prefix went while it was in use";
    }
  }

  void end(size_t i, bool quarantine) {
    if (quarantine) held_.push_back(live_[i].pages.quarantine());
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  Rng rng_;
  Fixture f_;
  std::vector<Key> content_;  // by page: what a worker wrote
  std::map<Key, PageId> model_;
  std::vector<Live> live_;
  std::vector<std::vector<PageId>> held_;
};

TEST(PrefixCache, RandomOperationsAgainstTheModel) {
  struct Case {
    int32_t page_count, hash_bits, floor;
  };
  uint64_t seed = 0;
  for (const Case c : {Case{8, 128, 0}, Case{24, 128, 0}, Case{24, 2, 0}, Case{24, 128, 4},
                       Case{48, 70, 2}, Case{12, 0, 1}}) {
    SCOPED_TRACE(testing::Message() << "pages " << c.page_count << " bits " << c.hash_bits);
    CacheAgainstModel test(++seed, c.page_count, c.hash_bits, c.floor);
    for (int operation = 0; operation < 25'000; ++operation) {
      test.operate();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "operation " << operation;
    }
    EXPECT_GT(test.stats().hit_tokens, 0);
    EXPECT_GT(test.stats().evicted_pages, 0);
    test.drain();
  }
}

}  // namespace
}  // namespace tandem::kv
