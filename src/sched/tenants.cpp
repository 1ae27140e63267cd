// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants.h"

#include <algorithm>
#include <limits>

#include "core/check.h"

namespace tandem::sched {

int32_t Tenants::waiting(uint64_t key) const {
  const auto known = by_key_.find(key);
  return known == by_key_.end() ? 0 : at(known->second).waiting;
}

int32_t Tenants::enter(uint64_t key) {
  const auto known = by_key_.find(key);
  if (known != by_key_.end() && at(known->second).sequences > 0) {
    ++at(known->second).sequences;
    return known->second;
  }
  advance_virtual_time();
  int32_t slot = kNone;
  if (known != by_key_.end()) {
    slot = known->second;
  } else {
    if (remembered() >= remembered_max_) forget_some();
    if (free_.empty()) {
      free_.push_back(slots());
      tenants_.emplace_back();
    }
    slot = free_.back();
    free_.pop_back();
    at(slot) = {.key = key};
    by_key_.emplace(key, slot);
  }
  Tenant& tenant = at(slot);
  tenant.served = std::max(tenant.served, virtual_time_);
  tenant.sequences = 1;
  ++present_;
  return slot;
}

void Tenants::leave(int32_t slot) {
  Tenant& tenant = at(slot);
  CHECK(tenant.sequences > 0);
  if (--tenant.sequences > 0) return;
  CHECK(tenant.reserved == 0 && tenant.waiting_first == kNone, "reserved {}", tenant.reserved);
  --present_;
}

void Tenants::advance_virtual_time() {
  int64_t lowest_present = std::numeric_limits<int64_t>::max();
  int64_t highest = virtual_time_;
  for (const Tenant& tenant : tenants_) {
    highest = std::max(highest, tenant.served);
    if (tenant.sequences > 0) lowest_present = std::min(lowest_present, tenant.served);
  }
  // With nobody present there is nobody to be fair to: all start level.
  virtual_time_ = std::max(virtual_time_, present_ > 0 ? lowest_present : highest);
}

// A tenant that is away and not ahead of the virtual time comes back as if it were new, so nothing
// is lost with its counter. If all are ahead, the one least ahead is forgotten.
void Tenants::forget_some() {
  int32_t least_ahead = kNone;
  for (auto entry = by_key_.begin(); entry != by_key_.end();) {
    const int32_t slot = entry->second;
    const Tenant& tenant = at(slot);
    const bool away = tenant.sequences == 0;
    if (away && tenant.served <= virtual_time_) {
      at(slot) = {};
      free_.push_back(slot);
      entry = by_key_.erase(entry);
      continue;
    }
    if (away && (least_ahead == kNone || tenant.served < at(least_ahead).served)) {
      least_ahead = slot;
    }
    ++entry;
  }
  if (remembered() < remembered_max_) return;
  CHECK(least_ahead != kNone, "{} tenants are present, room for {}", present_, remembered_max_);
  by_key_.erase(at(least_ahead).key);
  at(least_ahead) = {};
  free_.push_back(least_ahead);
}

}  // namespace tandem::sched
