// SPDX-License-Identifier: Apache-2.0
#include "engine/incoming.h"

#include <algorithm>
#include <utility>

namespace tandem::engine {

void IncomingSet::expect(const HandoffTarget& target, int32_t prompt_tokens) {
  Handoff& handoff = handoffs_[target.key];
  handoff.pages = target.pages;
  handoff.prompt_tokens = prompt_tokens;
  handoff.digests.resize(part_count(kv_.layout(), target.pages.size()));
  arrivals_.expect(target.key, static_cast<uint32_t>(handoff.digests.size()), handoff.fresh);
}

void IncomingSet::forget(transfer::HandoffKey key) {
  handoffs_.erase(key);
  arrivals_.forget(key);
}

bool IncomingSet::step(transfer::Transport& transport) {
  messages_.clear();
  transport.take_arrivals(messages_);
  bool worked = !messages_.empty();
  for (const transfer::Parts& parts : messages_) {
    const auto it = handoffs_.find(parts.key);
    ignored_.clear();
    arrivals_.add(parts, it == handoffs_.end() ? ignored_ : it->second.fresh);
  }
  uint64_t budget = settings_.verify_bytes_per_step;
  for (auto& [key, handoff] : handoffs_) {
    if (budget == 0) break;
    worked |= !handoff.fresh.empty();
    digest_fresh(handoff, budget);
  }
  return worked;
}

void IncomingSet::digest_fresh(Handoff& handoff, uint64_t& budget) {
  while (!handoff.fresh.empty() && budget > 0) {
    const size_t part = handoff.fresh.back();
    handoff.fresh.pop_back();
    const auto slab = static_cast<int32_t>(part / handoff.pages.size());
    const PageId page = handoff.pages[part % handoff.pages.size()];
    handoff.digests[part] = transfer::digest_of(page_bytes(kv_, slab, page));
    budget -= std::min<uint64_t>(budget, kv_.layout().page_bytes());
  }
}

void IncomingSet::ended(const HandoffEnd& end, TimePoint now) {
  Handoff& handoff = handoffs_.at(end.key);
  handoff.end = end;
  handoff.end_time = now;
}

Verdict IncomingSet::verdict(transfer::HandoffKey key, TimePoint now, std::string_view& why) const {
  const Handoff& handoff = handoffs_.at(key);
  if (!handoff.end) return Verdict::kWait;
  const HandoffEnd& end = *handoff.end;
  if (end.parts != handoff.digests.size() || end.prompt_tokens != handoff.prompt_tokens ||
      end.layer_digests.size() != static_cast<size_t>(kv_.layout().layers)) {
    why = "the prefiller counted otherwise";
    return Verdict::kReject;
  }
  if (!arrivals_.complete(key)) {
    if (now - handoff.end_time < settings_.arrival_grace) return Verdict::kWait;
    why = "parts are missing";
    return Verdict::kReject;
  }
  if (!handoff.fresh.empty()) return Verdict::kWait;
  if (settings_.check_digest && layer_digests(kv_.layout(), handoff.digests) != end.layer_digests) {
    why = "the digest differs";
    return Verdict::kReject;
  }
  return Verdict::kAccept;
}

}  // namespace tandem::engine
