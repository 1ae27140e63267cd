// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back: byte-level BPE as Qwen ships it in tokenizer.json. serve/ and app/
// call it; one object is shared by all threads (const, no hidden state but a bounded per-call
// scratch). Source: the tokenizer.json format of Hugging Face tokenizers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace tandem::text {

// Whether the strings of added tokens that are marked special (<|im_end|>, …) turn into their ids.
enum class Specials : uint8_t {
  kParse,  // text of a template: they do
  kPlain,  // text of a user: they stay text. Added tokens that aren't special (<think>, …) are
           // still parsed
};

class Tokenizer {
 public:
  // Reads tokenizer.json; refuses by name every kind of normaliser, pre-tokeniser, post-processor
  // or decoder that it doesn't know, and every inconsistent table (ids twice, gaps past limits,
  // merges of absent tokens, …).
  static Result<Tokenizer> load(const std::filesystem::path& tokenizer_json);
  static Result<Tokenizer> parse(std::string_view json, std::string_view file_name);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Any bytes are legal input: invalid UTF-8 becomes U+FFFD first, as Python's errors="replace"
  // does. O(n log n) for any input.
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text, Specials specials) const;

  // The bytes of one token; empty for ids that have none (gaps, ids >= vocab_size()).
  [[nodiscard]] std::string_view token_bytes(int32_t id) const;
  [[nodiscard]] bool is_special(int32_t id) const;
  [[nodiscard]] int32_t vocab_size() const;  // one more than the largest id
  [[nodiscard]] std::optional<int32_t> find_added(
      std::string_view content) const;  // "<|im_end|>" -> id
  [[nodiscard]] std::vector<std::string> special_strings() const;

  // Whole decode: bytes joined, invalid UTF-8 replaced by U+FFFD.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids, bool skip_special) const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace tandem::text
