// SPDX-License-Identifier: Apache-2.0
#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/rng.h"

namespace tandem::kv {
namespace {

TEST(PagePool, AllocatesAllOrNothing) {
  PagePool pool({.page_count = 4});
  std::vector<PageId> pages;
  ASSERT_TRUE(pool.allocate(3, pages));
  EXPECT_FALSE(pool.allocate(2, pages));
  EXPECT_EQ(pages.size(), 3U);
  EXPECT_EQ(pool.counts(), (PageCounts{.total = 4, .free = 1, .referenced = 3}));
  EXPECT_TRUE(pool.allocate(0, pages));
  EXPECT_TRUE(pool.allocate(1, pages));
  EXPECT_EQ(pool.available(), 0);
}

TEST(PagePool, AnEpochEndsWhenThePageBecomesFree) {
  PagePool pool({.page_count = 1});
  std::vector<PageId> pages;
  ASSERT_TRUE(pool.allocate(1, pages));
  const PageRef first = pool.ref(pages[0]);
  EXPECT_TRUE(pool.is_current(first));
  pool.retain(pages[0]);
  pool.release(pages[0]);
  EXPECT_TRUE(pool.is_current(first));
  pool.release(pages[0]);
  EXPECT_FALSE(pool.is_current(first));
  ASSERT_TRUE(pool.allocate(1, pages));
  EXPECT_FALSE(pool.is_current(first));
  EXPECT_TRUE(pool.is_current(pool.ref(pages[0])));
  EXPECT_FALSE(pool.is_current({PageId{-1}, 0}));
  EXPECT_FALSE(pool.is_current({PageId{1}, 0}));
}

TEST(PagePool, AQuarantinedPageIsNeverAllocated) {
  PagePool pool({.page_count = 2});
  std::vector<PageId> pages;
  ASSERT_TRUE(pool.allocate(2, pages));
  pool.quarantine(pages[0]);
  pool.release(pages[1]);
  EXPECT_EQ(pool.available(), 1);
  std::vector<PageId> more;
  EXPECT_FALSE(pool.allocate(2, more));
  const PageRef held = pool.ref(pages[0]);
  EXPECT_TRUE(pool.is_current(held)) << "a late write to it is still expected";
  pool.release_hold(pages[0]);
  EXPECT_FALSE(pool.is_current(held));
  EXPECT_TRUE(pool.allocate(2, more));
}

TEST(PagePool, EvictsTheOldestCachedPageAndSaysSoFirst) {
  PagePool pool({.page_count = 3});
  std::vector<PageId> pages;
  ASSERT_TRUE(pool.allocate(3, pages));
  std::vector<PageId> evicted;
  pool.on_evict([&](PageId page) {
    EXPECT_EQ(pool.state(page), PageState::kCached);
    evicted.push_back(page);
  });
  for (const PageId page : pages) pool.keep(page, 0);
  for (const size_t i : {1U, 0U, 2U}) pool.release(pages[i]);
  EXPECT_EQ(pool.counts().cached, 3);
  pool.retain(pages[1]);  // used again: now the youngest
  pool.release(pages[1]);
  std::vector<PageId> more;
  ASSERT_TRUE(pool.allocate(2, more));
  EXPECT_EQ(evicted, (std::vector<PageId>{pages[0], pages[2]}));
  EXPECT_EQ(pool.evictions(), 2);
  EXPECT_TRUE(pool.kept(pages[1]));
}

TEST(PagePool, AFloodOfOneGroupLeavesTheFloorOfTheOthers) {
  PagePool pool({.page_count = 10, .group_floor_pages = 3});
  std::vector<PageId> quiet;
  ASSERT_TRUE(pool.allocate(3, quiet));
  for (const PageId page : quiet) pool.keep(page, 0);
  for (const PageId page : quiet) pool.release(page);
  for (int round = 0; round < 50; ++round) {
    std::vector<PageId> flood;
    ASSERT_TRUE(pool.allocate(5, flood));
    for (const PageId page : flood) pool.keep(page, 1);
    for (const PageId page : flood) pool.release(page);
    pool.check_invariants();
  }
  for (const PageId page : quiet) EXPECT_TRUE(pool.kept(page));
  // The floor is a preference, not a reservation: all pages can still be had.
  std::vector<PageId> all;
  EXPECT_TRUE(pool.allocate(10, all));
}

TEST(PagePoolDeathTest, MisuseIsABug) {
  PagePool pool({.page_count = 2});
  std::vector<PageId> pages;
  ASSERT_TRUE(pool.allocate(1, pages));
  pool.release(pages[0]);
  EXPECT_DEATH(pool.release(pages[0]), "released too often");
  EXPECT_DEATH(pool.retain(pages[0]), "no content to share");
  EXPECT_DEATH(pool.release_hold(pages[0]), "isn't held");
  EXPECT_DEATH(pool.release(PageId{2}), "page 2 of 2");
}

// The pool, said again without lists, stamps and counters.
struct ModelPage {
  int references = 0, holds = 0;
  std::optional<CacheGroup> group;
  int64_t cached_since = 0;
  uint32_t epoch = 0;
  [[nodiscard]] PageState state() const {
    if (references > 0) return PageState::kReferenced;
    if (holds > 0) return PageState::kQuarantined;
    return group ? PageState::kCached : PageState::kFree;
  }
};

class PoolAgainstModel {
 public:
  PoolAgainstModel(uint64_t seed, int32_t page_count, int32_t floor)
      : rng_(seed), floor_(floor), pool_({.page_count = page_count, .group_floor_pages = floor}) {
    model_.resize(static_cast<size_t>(page_count));
    pool_.on_evict([this](PageId page) { evicted_.push_back(page); });
  }

  void operate() {
    ++time_;
    switch (rng_.below(6)) {
      case 0:
        return allocate(static_cast<int32_t>(rng_.below(6)));
      case 1:
        return on_random([](const ModelPage& p) { return p.references > 0 || p.group; },
                         [&](PageId page, ModelPage& p) { pool_.retain(page), ++p.references; });
      case 2:
        return on_random([](const ModelPage& p) { return p.references > 0; },
                         [&](PageId page, ModelPage& p) { pool_.release(page), --p.references; });
      case 3:
        return on_random(
            [](const ModelPage& p) { return p.references > 0; },
            [&](PageId page, ModelPage& p) { pool_.quarantine(page), --p.references, ++p.holds; });
      case 4:
        return on_random([](const ModelPage& p) { return p.holds > 0; },
                         [&](PageId page, ModelPage& p) { pool_.release_hold(page), --p.holds; });
      default:
        return on_random([](const ModelPage& p) { return p.references > 0 && !p.group; },
                         [&](PageId page, ModelPage& p) {
                           p.group = static_cast<CacheGroup>(rng_.below(4));
                           pool_.keep(page, *p.group);
                         });
    }
  }

  void compare() const {
    pool_.check_invariants();
    PageCounts counts{.total = static_cast<int32_t>(model_.size())};
    for (size_t i = 0; i < model_.size(); ++i) {
      const PageId page{static_cast<int32_t>(i)};
      const ModelPage& p = model_[i];
      counts.free += p.state() == PageState::kFree ? 1 : 0;
      counts.referenced += p.state() == PageState::kReferenced ? 1 : 0;
      counts.cached += p.state() == PageState::kCached ? 1 : 0;
      counts.quarantined += p.state() == PageState::kQuarantined ? 1 : 0;
      ASSERT_EQ(pool_.state(page), p.state()) << "page " << i;
      ASSERT_EQ(pool_.references(page), p.references);
      ASSERT_EQ(pool_.kept(page), p.group.has_value());
      ASSERT_EQ(pool_.ref(page).epoch, p.epoch);
    }
    ASSERT_EQ(pool_.counts(), counts);
  }

 private:
  template <typename Fits, typename Do>
  void on_random(Fits fits, Do act) {
    std::vector<size_t> candidates;
    for (size_t i = 0; i < model_.size(); ++i) {
      if (fits(model_[i])) candidates.push_back(i);
    }
    if (candidates.empty()) return;
    const size_t i = candidates[rng_.below(candidates.size())];
    ModelPage& p = model_[i];
    const PageState before = p.state();
    act(PageId{static_cast<int32_t>(i)}, p);
    if (p.state() == PageState::kCached && before != PageState::kCached) p.cached_since = time_;
    if (p.state() == PageState::kFree) ++p.epoch;
  }

  [[nodiscard]] size_t victim() const {
    std::vector<int32_t> group_cached(4, 0);
    for (const ModelPage& p : model_) {
      if (p.state() == PageState::kCached) ++group_cached[static_cast<size_t>(*p.group)];
    }
    std::optional<std::tuple<bool, int64_t, size_t>> best;
    for (size_t i = 0; i < model_.size(); ++i) {
      const ModelPage& p = model_[i];
      if (p.state() != PageState::kCached) continue;
      const bool small = group_cached[static_cast<size_t>(*p.group)] <= floor_;
      const auto key = std::make_tuple(small, p.cached_since, i);
      if (!best || key < *best) best = key;
    }
    return std::get<size_t>(best.value());
  }

  void allocate(int32_t count) {
    int32_t available = 0;
    int32_t free = 0;
    for (const ModelPage& p : model_) {
      free += p.state() == PageState::kFree ? 1 : 0;
      available += p.state() == PageState::kFree || p.state() == PageState::kCached ? 1 : 0;
    }
    evicted_.clear();
    std::vector<PageId> out;
    ASSERT_EQ(pool_.allocate(count, out), count <= available);
    if (count > available) {
      ASSERT_TRUE(out.empty() && evicted_.empty());
      return;
    }
    ASSERT_EQ(static_cast<int32_t>(evicted_.size()), std::max(0, count - free));
    for (const PageId page : evicted_) {
      ASSERT_EQ(static_cast<size_t>(page.value), victim());
      ModelPage& p = model_[static_cast<size_t>(page.value)];
      p.group.reset();
      ++p.epoch;
    }
    ASSERT_EQ(static_cast<int32_t>(out.size()), count);
    for (const PageId page : out) {
      ModelPage& p = model_[static_cast<size_t>(page.value)];
      ASSERT_EQ(p.state(), PageState::kFree) << "page " << page.value << " was given twice";
      p.references = 1;
    }
  }

  Rng rng_;
  int32_t floor_;
  PagePool pool_;
  std::vector<ModelPage> model_;
  std::vector<PageId> evicted_;
  int64_t time_ = 0;
};

TEST(PagePool, RandomOperationsAgainstTheModel) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    PoolAgainstModel test(seed, static_cast<int32_t>(4 + 5 * seed), static_cast<int32_t>(seed % 4));
    for (int operation = 0; operation < 25'000; ++operation) {
      test.operate();
      test.compare();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "operation " << operation;
    }
  }
}

}  // namespace
}  // namespace tandem::kv
