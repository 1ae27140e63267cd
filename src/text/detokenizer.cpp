// SPDX-License-Identifier: Apache-2.0
#include "text/detokenizer.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace tandem::text {

void Detokenizer::push(int32_t id, std::string& out) {
  if (skip_special_ && tokenizer_->is_special(id)) return;
  const std::string_view bytes = tokenizer_->token_bytes(id);
  if (pending_.empty()) {
    pending_ = bytes.substr(append_replacing(bytes, out));
    return;
  }
  pending_.append(bytes);
  pending_.erase(0, append_replacing(pending_, out));
}

void Detokenizer::finish(std::string& out) {
  if (!pending_.empty()) out.append(kReplacement);
  pending_.clear();
}

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    CHECK(!stop.empty());
    longest_ = std::max(longest_, stop.size());
  }
}

bool StopMatcher::push(std::string_view piece, std::string& out) {
  held_.append(piece);
  // The match that ends first counts, the longest among those, so that the cuts between the pieces
  // never matter.
  size_t begin = std::string::npos;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t stop_end = at + stop.size();
    if (stop_end < end || (stop_end == end && at < begin)) {
      begin = at;
      end = stop_end;
    }
  }
  if (begin != std::string::npos) {
    out.append(held_, 0, begin);
    held_.clear();
    return true;
  }
  // Hold back the longest end that begins a stop string.
  const std::string_view held = held_;
  const auto begins_stop = [this](std::string_view text) {
    return std::ranges::any_of(stops_,
                               [text](const std::string& stop) { return stop.starts_with(text); });
  };
  size_t keep = std::min(held.size(), longest_ == 0 ? 0 : longest_ - 1);
  while (keep > 0 && !begins_stop(held.substr(held.size() - keep))) --keep;
  out.append(held.substr(0, held.size() - keep));
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopMatcher::finish(std::string& out) {
  out.append(held_);
  held_.clear();
}

}  // namespace tandem::text
