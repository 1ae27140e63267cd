// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

namespace tandem::text {
namespace {

uint64_t edge(int32_t node, char byte) {
  return uint64_t{static_cast<uint32_t>(node)} << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

void AddedTokens::add(std::string_view content, int32_t id) {
  first_bytes_.set(static_cast<uint8_t>(content[0]));
  int32_t node = 0;
  for (const char byte : content) {
    const auto [entry, is_new] =
        children_.try_emplace(edge(node, byte), static_cast<int32_t>(ids_.size()));
    if (is_new) ids_.push_back(kNone);
    node = entry->second;
  }
  ids_[static_cast<size_t>(node)] = id;
}

int32_t AddedTokens::child(int32_t node, char byte) const {
  const auto found = children_.find(edge(node, byte));
  return found == children_.end() ? kNone : found->second;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<uint8_t>(text[begin])]) continue;
    std::optional<Match> longest;
    int32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      node = child(node, text[at]);
      if (node == kNone) break;
      const int32_t id = ids_[static_cast<size_t>(node)];
      if (id != kNone) longest = Match{begin, at + 1 - begin, id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

std::optional<int32_t> AddedTokens::find_exact(std::string_view content) const {
  const auto match = find(content, 0);
  if (!match || match->begin != 0 || match->bytes != content.size()) return std::nullopt;
  return match->id;
}

}  // namespace tandem::text
