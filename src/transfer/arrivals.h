// SPDX-License-Identifier: Apache-2.0
// What has arrived of each handoff: a set of parts, not a counter, so that a duplicate or a stale
// message never completes anything. The decode worker owns one. Early arrivals (before expect) are
// kept in a bounded buffer; the oldest falls out first, and its handoff then ends by its deadline.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "transfer/request.h"

namespace tandem::transfer {

class Arrivals {
 public:
  explicit Arrivals(size_t early_max = 1024) : early_max_(early_max) {}

  // Declares a handoff of parts [0, part_count). Parts that came early are counted now and appended
  // to `fresh`. The key must not be expected already.
  void expect(HandoffKey key, uint32_t part_count, std::vector<uint32_t>& fresh);
  // Counts a message; appends the parts that were not there before to `fresh`. A message that names
  // a part outside the handoff counts for nothing at all. True where the key is expected.
  bool add(const Parts& parts, std::vector<uint32_t>& fresh);
  void forget(HandoffKey key);

  [[nodiscard]] bool expected(HandoffKey key) const { return sets_.contains(key); }
  [[nodiscard]] bool complete(HandoffKey key) const;
  [[nodiscard]] uint32_t arrived(HandoffKey key) const;  // 0 for an unknown key
  [[nodiscard]] size_t open() const { return sets_.size(); }
  [[nodiscard]] int64_t refused() const { return refused_; }        // out of range
  [[nodiscard]] int64_t duplicates() const { return duplicates_; }  // parts seen again

 private:
  struct Set {
    std::vector<bool> has;
    uint32_t count = 0;
  };
  void count_in(Set& set, const Parts& parts, std::vector<uint32_t>& fresh);

  size_t early_max_;
  std::map<HandoffKey, Set> sets_;
  std::deque<Parts> early_;
  int64_t refused_ = 0;
  int64_t duplicates_ = 0;
};

}  // namespace tandem::transfer
