// SPDX-License-Identifier: Apache-2.0
#include "transfer/arrivals.h"

#include "core/check.h"

namespace tandem::transfer {

void Arrivals::expect(HandoffKey key, uint32_t part_count, std::vector<uint32_t>& fresh) {
  const auto [it, inserted] = sets_.try_emplace(key);
  CHECK(inserted, "handoff {} epoch {} is expected already", key.handoff.value, key.epoch);
  it->second.has.assign(part_count, false);
  std::deque<Parts> others;
  for (const Parts& parts : early_) {
    if (parts.key == key) {
      count_in(it->second, parts, fresh);
    } else {
      others.push_back(parts);
    }
  }
  early_.swap(others);
}

bool Arrivals::add(const Parts& parts, std::vector<uint32_t>& fresh) {
  const auto it = sets_.find(parts.key);
  if (it != sets_.end()) {
    count_in(it->second, parts, fresh);
    return true;
  }
  if (early_max_ == 0) return false;
  if (early_.size() == early_max_) early_.pop_front();
  early_.push_back(parts);
  return false;
}

void Arrivals::forget(HandoffKey key) {
  sets_.erase(key);
}

bool Arrivals::complete(HandoffKey key) const {
  const auto it = sets_.find(key);
  return it != sets_.end() && it->second.count == it->second.has.size();
}

uint32_t Arrivals::arrived(HandoffKey key) const {
  const auto it = sets_.find(key);
  return it == sets_.end() ? 0 : it->second.count;
}

void Arrivals::count_in(Set& set, const Parts& parts, std::vector<uint32_t>& fresh) {
  const size_t size = set.has.size();
  if (parts.count > size || parts.begin > size - parts.count) {
    ++refused_;
    return;
  }
  for (uint32_t part = parts.begin; part < parts.begin + parts.count; ++part) {
    if (set.has[part]) {
      ++duplicates_;
      continue;
    }
    set.has[part] = true;
    ++set.count;
    fresh.push_back(part);
  }
}

}  // namespace tandem::transfer
