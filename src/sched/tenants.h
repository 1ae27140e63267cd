// SPDX-License-Identifier: Apache-2.0
// Who is next among the tenants, and each tenant's waiting sequences in order of arrival. Only the
// scheduler uses it.
//
// Every tenant has a counter of the rows it was served. The lowest counter goes first, so tenants
// that always want more get the same number of rows. A tenant that was away is lifted to the lowest
// counter of those present: nobody saves up. Admission looks at the counter plus the rows that the
// tenant's admitted sequences may still take, so that one burst doesn't reserve all there is.
// Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024 (virtual token
// counter); the lift is start-time fair queueing's virtual time (Goyal et al., SIGCOMM 1996).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tandem::sched {

constexpr int32_t kNone = -1;

struct Tenant {
  uint64_t key = 0;
  int64_t served = 0;     // rows
  int64_t reserved = 0;   // rows that its admitted sequences may still take
  int32_t sequences = 0;  // waiting and admitted
  int32_t waiting = 0;
  int32_t waiting_first = kNone, waiting_last = kNone;  // slots of sequences
};

class Tenants {
 public:
  // `remembered_max`: counters kept, of tenants present and away together; at least the number of
  // sequences.
  explicit Tenants(int32_t remembered_max) : remembered_max_(remembered_max) {}

  [[nodiscard]] int32_t waiting(uint64_t key) const;
  // One more sequence of this tenant. Gives its slot, valid until the matching leave().
  int32_t enter(uint64_t key);
  void leave(int32_t slot);

  [[nodiscard]] Tenant& at(int32_t slot) { return tenants_[static_cast<size_t>(slot)]; }
  [[nodiscard]] const Tenant& at(int32_t slot) const { return tenants_[static_cast<size_t>(slot)]; }
  [[nodiscard]] int32_t slots() const { return static_cast<int32_t>(tenants_.size()); }
  [[nodiscard]] int32_t present() const { return present_; }
  [[nodiscard]] int32_t remembered() const { return static_cast<int32_t>(by_key_.size()); }

 private:
  void advance_virtual_time();
  void forget_some();

  int32_t remembered_max_;
  int32_t present_ = 0;
  int64_t virtual_time_ = 0;  // lowest counter of those present, when somebody last arrived
  std::vector<Tenant> tenants_;
  std::vector<int32_t> free_;
  std::unordered_map<uint64_t, int32_t> by_key_;
};

}  // namespace tandem::sched
