// SPDX-License-Identifier: Apache-2.0
// The receiving half of handoffs: what is expected, what has arrived, and whether it may be
// believed. The decode worker owns one set. Pages are digested as they arrive, a bounded number of
// bytes a step, so that hardly anything is left to do when the end message comes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/handoff.h"
#include "transfer/arrivals.h"

namespace tandem::engine {

struct IncomingSettings {
  uint64_t verify_bytes_per_step = 32ULL << 20;
  // How long counts may still be under way after the end message; then the handoff is rejected.
  Duration arrival_grace = std::chrono::milliseconds(200);
  bool check_digest = true;  // false only in the test that shows what the check is for
};

enum class Verdict : uint8_t { kWait, kAccept, kReject };

class IncomingSet {
 public:
  IncomingSet(const model::KvStore& kv, const IncomingSettings& settings)
      : kv_(kv), settings_(settings) {}

  // Before the prefiller is asked.
  void expect(const HandoffTarget& target, int32_t prompt_tokens);
  void forget(transfer::HandoffKey key);

  // Takes arrivals, digests what is new. False: there was nothing to do.
  bool step(transfer::Transport& transport);
  // The end message of an expected handoff whose outcome is kComplete.
  void ended(const HandoffEnd& end, TimePoint now);
  // kReject: `why` says what was wrong, for the log.
  [[nodiscard]] Verdict verdict(transfer::HandoffKey key, TimePoint now,
                                std::string_view& why) const;

  [[nodiscard]] bool expects(transfer::HandoffKey key) const { return handoffs_.contains(key); }
  [[nodiscard]] const transfer::Arrivals& arrivals() const { return arrivals_; }

 private:
  struct Handoff {
    std::vector<PageId> pages;
    int32_t prompt_tokens = 0;
    std::vector<uint32_t> fresh;            // arrived, not yet digested
    std::vector<transfer::Digest> digests;  // [parts]
    std::optional<HandoffEnd> end;
    TimePoint end_time{};
  };
  void digest_fresh(Handoff& handoff, uint64_t& budget);

  const model::KvStore& kv_;
  IncomingSettings settings_;
  transfer::Arrivals arrivals_;
  std::map<transfer::HandoffKey, Handoff> handoffs_;
  std::vector<transfer::Parts> messages_;  // kept for its capacity
  std::vector<uint32_t> ignored_;
};

}  // namespace tandem::engine
