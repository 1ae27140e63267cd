// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json made in memory, for tests: one token for every byte, and the merges and added
// tokens that a test asks for.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/qwen_split.h"

namespace tandem::text {

struct SmallVocabulary {
  std::vector<std::pair<std::string, std::string>> merges;  // bytes of the two parts, best first
  std::vector<std::pair<std::string, bool>> added = {
      {"<|im_start|>", true}, {"<|im_end|>", true}, {"<think>", false}};
  std::string_view pattern = kQwen3Pattern;
  bool merges_as_pairs = false;  // ["a", "b"] instead of "a b"
  bool ignore_merges = false;
};

// The spelling of bytes in tokenizer.json: GPT-2's printable alphabet.
[[nodiscard]] std::string spelled(std::string_view bytes);

[[nodiscard]] std::string json_quoted(std::string_view text);

// Byte b has the id b, the result of merge i the id 256 + i (results must differ), added tokens
// follow.
[[nodiscard]] std::string to_json(const SmallVocabulary& vocabulary);

}  // namespace tandem::text
