// SPDX-License-Identifier: Apache-2.0
// Character properties for splitting and normalising: classes (letter, mark, number, white space)
// and canonical combining classes of every code point, in tables that are made at load.
// split.h and nfc.h read them.
//
// Two Unicode versions meet here, because ids must equal those of the Hugging Face tokenizers
// package (0.23.3): its regular expressions know Unicode 16, its NFC knows Unicode 9. utf8proc 2.8
// (Unicode 15) is the base; unicode.cpp lists the code points that differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tandem::text {

enum class CharClass : uint8_t {
  kOther = 0,   // punctuation, symbols, controls, unassigned
  kLetter = 1,  // \p{L}
  kMark = 2,    // \p{M}
  kNumber = 3,  // \p{N}
  kSpace = 4,   // \s but CR and LF
  kNewline = 5  // CR, LF
};

// One byte for every code point, in pages that are stored once (about 100 of 4,352 are different).
class ByteTable {
 public:
  static constexpr size_t kPageSize = 256;

  // values: 0x110000 bytes.
  void build(const std::vector<uint8_t>& values);
  [[nodiscard]] uint8_t operator[](uint32_t code_point) const {
    return pages_[size_t{page_of_[code_point >> 8]} * kPageSize + (code_point & 0xFF)];
  }

 private:
  std::array<uint16_t, 0x1100> page_of_{};
  std::vector<uint8_t> pages_;
};

class UnicodeData {
 public:
  UnicodeData();  // walks all code points: about 30 ms

  [[nodiscard]] CharClass char_class(uint32_t code_point) const {
    return static_cast<CharClass>(flags_[code_point] & kClassMask);
  }
  // False: the character is the same alone and composed, has no combining class and never joins
  // the character before it, so text of such characters is in NFC.
  [[nodiscard]] bool may_change(uint32_t code_point) const { return flags_[code_point] >= kHasCcc; }
  // True: NFC of a text with this character has to be computed to be known (NFC_QC No or Maybe).
  [[nodiscard]] bool needs_nfc(uint32_t code_point) const {
    return (flags_[code_point] & kNeedsNfc) != 0;
  }
  [[nodiscard]] uint8_t combining_class(uint32_t code_point) const {
    return combining_[code_point];
  }
  // Appends the full canonical decomposition.
  void decompose(uint32_t code_point, std::vector<uint32_t>& out) const;
  // The primary composite of two characters, or 0.
  [[nodiscard]] uint32_t compose(uint32_t first, uint32_t second) const;

 private:
  static constexpr uint8_t kClassMask = 0x07, kHasCcc = 0x40, kNeedsNfc = 0x80;

  void add_decompositions(std::vector<uint8_t>& flags);

  ByteTable flags_;
  ByteTable combining_;
  std::unordered_map<uint64_t, uint32_t> composites_;                  // (first << 32 | second)
  std::unordered_map<uint32_t, std::vector<uint32_t>> decomposed_to_;  // without Hangul
};

}  // namespace tandem::text
