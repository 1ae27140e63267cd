// SPDX-License-Identifier: Apache-2.0
// tokenizer.json as checked data: everything that tokenizer.cpp builds on. Anything in the file
// that would change ids and is not implemented is refused by name.
// Source: the file format of Hugging Face tokenizers; the byte alphabet is GPT-2's
// bytes_to_unicode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/bpe.h"

namespace tandem::text {

inline constexpr size_t kTokenizerFileBytesMax = size_t{128} << 20;
// Ids that the file leaves out, below its largest one. Embedding rows are paid for by the largest.
inline constexpr int32_t kIdGapsMax = 4096;
inline constexpr size_t kAddedTokenBytesMax = 256;

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
};

struct TokenizerFile {
  BpeTable bpe;
  std::vector<AddedToken> added;
  bool nfc = false;
  std::string split_pattern;
  int32_t vocab_size = 0;  // one more than the largest id
};

// Errors name `file_name` and the field: kInvalidArgument, kUnsupported, kTooLarge.
[[nodiscard]] Result<TokenizerFile> parse_tokenizer_file(std::string_view json,
                                                         std::string_view file_name);

}  // namespace tandem::text
