// SPDX-License-Identifier: Apache-2.0
// Who owns which KV page: ids and counters only, no bytes. Workers and sched/ call it, from one
// thread.
//
// Every page is in exactly one state, so the four counts always add up to page_count():
//   referenced   somebody holds a reference
//   quarantined  nobody does, but a transfer may still write or read it: never allocated
//   cached       neither, but the prefix cache keeps its content: allocated when nothing is free
//   free         none of these
// A page that becomes free starts a new epoch, so a late message that names (page, epoch) can be
// told from one about the page's new owner.
//
// Cached pages are evicted oldest first. Callers give up a sequence's pages last page first (as
// SequencePages does), and whoever holds a page holds the pages of the same prefix before it; then
// the oldest cached page never has a kept successor, and every cached page can be evicted.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "core/ids.h"

namespace tandem::kv {

enum class PageState : uint8_t { kFree, kReferenced, kCached, kQuarantined };

// A page as a message names it. Stale once the page has been free in between.
struct PageRef {
  PageId page;
  uint32_t epoch = 0;
  friend bool operator==(const PageRef&, const PageRef&) = default;
};

// Pages that compete for room in the cache together: those of one tenant salt.
using CacheGroup = int32_t;

struct PageCounts {
  int32_t total = 0, free = 0, referenced = 0, cached = 0, quarantined = 0;
  friend bool operator==(const PageCounts&, const PageCounts&) = default;
};

struct PagePoolSettings {
  int32_t page_count = 0;
  // A group that has at most so many cached pages loses them only when every group is that small:
  // nobody empties another tenant's cache by flooding the server.
  int32_t group_floor_pages = 0;
};

class PagePool {
 public:
  explicit PagePool(const PagePoolSettings& settings);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Appends `count` pages with one reference each to `out`, or changes nothing and says false: no
  // room now. Free pages go first, then cached ones, each after on_evict.
  [[nodiscard]] bool allocate(int32_t count, std::vector<PageId>& out);
  void retain(PageId page);   // one more reference to a page that is referenced, cached or
                              // quarantined
  void release(PageId page);  // one reference less

  // Turns the caller's reference into a hold that keeps the page from being allocated until
  // release_hold(). The other holders are not disturbed.
  void quarantine(PageId page);
  void release_hold(PageId page);

  // The prefix cache keeps the content of a referenced page, until on_evict takes it away.
  void keep(PageId page, CacheGroup group);
  // Called just before a kept page is taken away. Set once, by the prefix cache.
  void on_evict(std::function<void(PageId)> forget_content) {
    evicted_ = std::move(forget_content);
  }

  [[nodiscard]] PageCounts counts() const;
  // Pages that allocate() could give now.
  [[nodiscard]] int32_t available() const { return counts_.free + counts_.cached; }
  [[nodiscard]] PageState state(PageId page) const { return at(page).state; }
  [[nodiscard]] int32_t references(PageId page) const { return at(page).references; }
  [[nodiscard]] bool kept(PageId page) const { return at(page).group != kNoGroup; }
  [[nodiscard]] PageRef ref(PageId page) const { return {page, at(page).epoch}; }
  [[nodiscard]] bool is_current(PageRef ref) const;
  [[nodiscard]] int64_t evictions() const { return evictions_; }

  void check_invariants() const;  // walks everything: for tests

 private:
  static constexpr CacheGroup kNoGroup = -1;
  static constexpr int32_t kNoPage = -1;

  struct Page {
    PageState state = PageState::kFree;
    int32_t references = 0;
    int32_t holds = 0;
    uint32_t epoch = 0;
    CacheGroup group = kNoGroup;
    uint64_t stamp = 0;                        // when it became cached; orders the groups
    int32_t older = kNoPage, newer = kNoPage;  // neighbours in its group's list while cached
  };
  // Cached pages of one salt, oldest first.
  struct Group {
    int32_t oldest = kNoPage, newest = kNoPage;
    int32_t count = 0;
  };
  // Victims first: groups above the floor, then by the age of their oldest page.
  using VictimKey = std::tuple<bool, uint64_t, CacheGroup>;

  [[nodiscard]] const Page& at(PageId page) const;
  [[nodiscard]] Page& at(PageId page);
  [[nodiscard]] VictimKey victim_key(CacheGroup group) const;
  int32_t& count_of(PageState state);
  void settle(PageId page);  // moves it to the state that its counters call for
  void move_to(PageId page, PageState next);
  void link(PageId page);
  void unlink(PageId page);
  void evict_oldest();
  template <typename Change>
  void change_group(CacheGroup group, Change change);

  PagePoolSettings settings_;
  std::vector<Page> pages_;
  std::vector<int32_t> free_;  // a stack: the page freed last is warm
  std::vector<Group> groups_;
  std::set<VictimKey> victims_;  // groups with a cached page
  PageCounts counts_;
  uint64_t next_stamp_ = 1;
  int64_t evictions_ = 0;
  std::function<void(PageId)> evicted_;
};

}  // namespace tandem::kv
