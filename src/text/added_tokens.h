// SPDX-License-Identifier: Apache-2.0
// Finds the strings of added tokens (<|im_end|>, <think>, …) in a text, before anything else is
// done with it. tokenizer.cpp owns one.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::text {

class AddedTokens {
 public:
  struct Match {
    size_t begin, bytes;
    int32_t id;
  };

  // content: not empty.
  void add(std::string_view content, int32_t id);
  // The first match at or after `from`, the longest where several begin at one place. Time: a step
  // a byte, and where a token's first byte stands at most the longest token's length.
  [[nodiscard]] std::optional<Match> find(std::string_view text, size_t from) const;
  // The id of exactly this content.
  [[nodiscard]] std::optional<int32_t> find_exact(std::string_view content) const;

 private:
  static constexpr int32_t kNone = -1;

  // The child of a trie node, kNone where there is none.
  [[nodiscard]] int32_t child(int32_t node, char byte) const;

  std::vector<int32_t> ids_{kNone};                 // by trie node: the token that ends there
  std::unordered_map<uint64_t, int32_t> children_;  // node << 8 | byte
  std::bitset<256> first_bytes_;
};

}  // namespace tandem::text
