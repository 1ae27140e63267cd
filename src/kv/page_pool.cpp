// SPDX-License-Identifier: Apache-2.0
#include "kv/page_pool.h"

#include "core/check.h"

namespace tandem::kv {

PagePool::PagePool(const PagePoolSettings& settings) : settings_(settings) {
  CHECK(settings.page_count > 0 && settings.group_floor_pages >= 0, "pages {} floor {}",
        settings.page_count, settings.group_floor_pages);
  pages_.resize(static_cast<size_t>(settings.page_count));
  free_.reserve(pages_.size());
  for (int32_t page = settings.page_count - 1; page >= 0; --page) free_.push_back(page);
  counts_.total = settings.page_count;
  counts_.free = settings.page_count;
}

const PagePool::Page& PagePool::at(PageId page) const {
  CHECK(page.value >= 0 && page.value < counts_.total, "page {} of {}", page.value, counts_.total);
  return pages_[static_cast<size_t>(page.value)];
}

PagePool::Page& PagePool::at(PageId page) {
  CHECK(page.value >= 0 && page.value < counts_.total, "page {} of {}", page.value, counts_.total);
  return pages_[static_cast<size_t>(page.value)];
}

bool PagePool::allocate(int32_t count, std::vector<PageId>& out) {
  CHECK(count >= 0, "count {}", count);
  if (count > available()) return false;
  while (counts_.free < count) evict_oldest();
  for (int32_t i = 0; i < count; ++i) {
    const PageId page{free_.back()};
    free_.pop_back();
    at(page).references = 1;
    move_to(page, PageState::kReferenced);
    out.push_back(page);
  }
  return true;
}

void PagePool::retain(PageId page) {
  Page& p = at(page);
  CHECK(p.references > 0 || p.group != kNoGroup, "page {} has no content to share", page.value);
  ++p.references;
  settle(page);
}

void PagePool::release(PageId page) {
  Page& p = at(page);
  CHECK(p.references > 0, "page {} is released too often", page.value);
  --p.references;
  settle(page);
}

void PagePool::quarantine(PageId page) {
  Page& p = at(page);
  CHECK(p.references > 0, "page {} isn't referenced", page.value);
  --p.references;
  ++p.holds;
  settle(page);
}

void PagePool::release_hold(PageId page) {
  Page& p = at(page);
  CHECK(p.holds > 0, "page {} isn't held", page.value);
  --p.holds;
  settle(page);
}

void PagePool::keep(PageId page, CacheGroup group) {
  Page& p = at(page);
  CHECK(p.references > 0 && p.group == kNoGroup, "page {} references {} group {}", page.value,
        p.references, p.group);
  CHECK(group >= 0 && group < counts_.total, "group {}", group);
  p.group = group;
  if (static_cast<size_t>(group) >= groups_.size()) groups_.resize(static_cast<size_t>(group) + 1);
}

bool PagePool::is_current(PageRef ref) const {
  if (ref.page.value < 0 || ref.page.value >= counts_.total) return false;
  const Page& p = at(ref.page);
  return p.epoch == ref.epoch && p.state != PageState::kFree;
}

PageCounts PagePool::counts() const {
  return counts_;
}

int32_t& PagePool::count_of(PageState state) {
  switch (state) {
    case PageState::kFree:
      return counts_.free;
    case PageState::kReferenced:
      return counts_.referenced;
    case PageState::kCached:
      return counts_.cached;
    case PageState::kQuarantined:
      break;
  }
  return counts_.quarantined;
}

void PagePool::settle(PageId page) {
  const Page& p = at(page);
  PageState next = PageState::kFree;
  if (p.references > 0) {
    next = PageState::kReferenced;
  } else if (p.holds > 0) {
    next = PageState::kQuarantined;
  } else if (p.group != kNoGroup) {
    next = PageState::kCached;
  }
  if (next != p.state) move_to(page, next);
}

void PagePool::move_to(PageId page, PageState next) {
  Page& p = at(page);
  if (p.state == PageState::kCached) unlink(page);
  --count_of(p.state);
  p.state = next;
  ++count_of(p.state);
  if (next == PageState::kCached) {
    link(page);
  } else if (next == PageState::kFree) {
    ++p.epoch;
    p.group = kNoGroup;
    free_.push_back(page.value);
  }
}

PagePool::VictimKey PagePool::victim_key(CacheGroup group) const {
  const Group& g = groups_[static_cast<size_t>(group)];
  return {g.count <= settings_.group_floor_pages, at(PageId{g.oldest}).stamp, group};
}

// Runs `change` on a group's list and puts the group where it belongs among the victims. The set's
// node is reused, so that only a group's first and last page touch the allocator.
template <typename Change>
void PagePool::change_group(CacheGroup group, Change change) {
  Group& g = groups_[static_cast<size_t>(group)];
  const bool was_listed = g.count > 0;
  const VictimKey before = was_listed ? victim_key(group) : VictimKey{};
  change(g);
  if (g.count == 0) {
    if (was_listed) victims_.erase(before);
    return;
  }
  const VictimKey after = victim_key(group);
  if (!was_listed) {
    victims_.insert(after);
  } else if (after != before) {
    auto node = victims_.extract(before);
    CHECK(!node.empty(), "group {}", group);
    node.value() = after;
    victims_.insert(std::move(node));
  }
}

void PagePool::link(PageId page) {
  Page& p = at(page);
  p.stamp = next_stamp_++;
  change_group(p.group, [&](Group& g) {
    p.older = g.newest;
    p.newer = kNoPage;
    (g.newest == kNoPage ? g.oldest : at(PageId{g.newest}).newer) = page.value;
    g.newest = page.value;
    ++g.count;
  });
}

void PagePool::unlink(PageId page) {
  Page& p = at(page);
  change_group(p.group, [&](Group& g) {
    (p.older == kNoPage ? g.oldest : at(PageId{p.older}).newer) = p.newer;
    (p.newer == kNoPage ? g.newest : at(PageId{p.newer}).older) = p.older;
    p.older = p.newer = kNoPage;
    --g.count;
  });
}

void PagePool::evict_oldest() {
  CHECK(!victims_.empty());
  const CacheGroup group = std::get<CacheGroup>(*victims_.begin());
  const PageId page{groups_[static_cast<size_t>(group)].oldest};
  if (evicted_) evicted_(page);
  move_to(page, PageState::kFree);
  ++evictions_;
}

void PagePool::check_invariants() const {
  PageCounts seen{.total = counts_.total};
  for (const Page& p : pages_) {
    CHECK(p.references >= 0 && p.holds >= 0);
    const bool kept = p.group != kNoGroup;
    switch (p.state) {
      case PageState::kFree:
        ++seen.free;
        CHECK(p.references == 0 && p.holds == 0 && !kept);
        break;
      case PageState::kReferenced:
        ++seen.referenced;
        CHECK(p.references > 0);
        break;
      case PageState::kCached:
        ++seen.cached;
        CHECK(p.references == 0 && p.holds == 0 && kept);
        break;
      case PageState::kQuarantined:
        ++seen.quarantined;
        CHECK(p.references == 0 && p.holds > 0);
        break;
    }
  }
  CHECK(seen == counts_);
  CHECK(seen.free + seen.referenced + seen.cached + seen.quarantined == seen.total);
  CHECK(static_cast<int32_t>(free_.size()) == seen.free);
  for (const int32_t page : free_) CHECK(at(PageId{page}).state == PageState::kFree);
  int32_t linked = 0;
  size_t listed_groups = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const Group& g = groups_[group];
    int32_t count = 0;
    uint64_t stamp = 0;
    for (int32_t page = g.oldest; page != kNoPage; page = at(PageId{page}).newer, ++count) {
      const Page& p = at(PageId{page});
      CHECK(p.state == PageState::kCached && p.group == static_cast<CacheGroup>(group));
      CHECK(p.stamp > stamp, "the list of group {} isn't in order", group);
      stamp = p.stamp;
    }
    CHECK(count == g.count);
    linked += count;
    if (count == 0) continue;
    ++listed_groups;
    CHECK(victims_.contains(victim_key(static_cast<CacheGroup>(group))));
  }
  CHECK(linked == seen.cached && listed_groups == victims_.size());
}

}  // namespace tandem::kv
