// SPDX-License-Identifier: Apache-2.0
// A transport that misbehaves by seed, around a sending endpoint: for fault tests and the
// simulator. It breaks what real networks break (time, order, bytes, messages) and keeps what a
// transport must keep: each accepted request ends in one Completion, and nothing but repeated
// counts moves after it.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>

#include "core/rng.h"
#include "core/tensor.h"
#include "transfer/transport.h"

namespace tandem::transfer {

enum class Fault : uint8_t {
  kDelay,        // held back for 1..delay_steps_max steps: reorders too
  kLose,         // neither bytes nor count arrive, yet the sender is told kDone
  kLoseBytes,    // the count arrives, the bytes do not
  kCorrupt,      // one byte is flipped, the count arrives
  kWriteTwice,   // the bytes are written again after they were counted, before the Completion
  kRepeatCount,  // the count is told once more, up to delay_steps_max steps after the Completion
  kFail,         // kFailed without a byte moved
  kBusy,         // submit() says that there is no room now
};
constexpr size_t kFaultKinds = 8;

struct FaultPlan {
  std::array<float, kFaultKinds> probability{};  // of each kind, per request
  int delay_steps_max = 8;

  FaultPlan& with(Fault fault, float p) {
    probability[static_cast<size_t>(fault)] = p;
    return *this;
  }
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, FaultPlan plan, uint64_t seed);

  EndpointId id() const override { return inner_->id(); }
  Result<MemoryHandle> register_memory(std::span<std::byte> memory) override;
  bool deregister_memory(const MemoryHandle& memory) override;
  Result<std::optional<TransferId>> submit(Request request) override;
  void cancel(HandoffKey owner) override;
  void step(TimePoint now) override;
  void take_completions(std::vector<Completion>& out) override;
  void take_arrivals(std::vector<Parts>& out) override { inner_->take_arrivals(out); }

  void set_plan(FaultPlan plan) { plan_ = plan; }  // none: the faults stop from here on
  // How often each fault was done to a request: a test that wants a fault checks that it took
  // place.
  [[nodiscard]] int64_t injected(Fault fault) const {
    return injected_[static_cast<size_t>(fault)];
  }

 private:
  struct Open {
    TransferId id;
    HandoffKey owner;
    TimePoint deadline;
    std::deque<Request> sequence;  // sent one after the other
    std::optional<TransferId> moving;
    int64_t wait_until_step = 0;
    bool cancelled = false;
    bool ghost = false;  // a repeated count: nobody waits for its Completion
    std::optional<Outcome> outcome;
  };
  bool draw(Fault fault);
  void plan_bytes(Open& open, Request request);
  void add_corrupted(Open& open, Request request);
  void advance(Open& open, TimePoint now);

  std::unique_ptr<Transport> inner_;
  FaultPlan plan_;
  Rng rng_;
  std::array<int64_t, kFaultKinds> injected_{};
  std::map<uint64_t, std::span<std::byte>> regions_;
  Buffer flipped_;  // wrong bytes on their way out
  MemoryHandle flipped_handle_;
  uint64_t next_flipped_ = 0;
  std::deque<Open> open_;
  std::vector<Completion> completions_;
  uint64_t next_transfer_ = 1;
  int64_t steps_ = 0;
};

}  // namespace tandem::transfer
