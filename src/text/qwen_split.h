// SPDX-License-Identifier: Apache-2.0
// The split patterns of the Qwen tokenizers as a hand-written scanner: where the next piece of a
// text ends. splitter.h uses it when a file's pattern is one of the two, letter for letter;
// tests hold it against PCRE2 and against the tokenizers package.
//
// The alternatives, in the order in which they are tried (L letters, M marks, N numbers; the newer
// pattern lets marks join letters, written [L]):
//   1 (?i:'s|'t|'re|'ve|'m|'ll|'d)   contractions; U+017F counts as an s
//   2 [^\r\n L N]? [L]+              letters, with one character of any other kind before
//   3 N                              one digit
//   4 ' '? [^\s [L] N]+ [\r\n]*      punctuation, with one space before and line ends behind
//   5 \s* [\r\n]+                    white space up to its last line end
//   6 \s+ (?!\S)                     white space without the character before a word
//   7 \s+                            a single white space character
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "text/unicode.h"
#include "text/utf8.h"

namespace tandem::text {

inline constexpr std::string_view kQwen3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class QwenSplit {
 public:
  QwenSplit(const UnicodeData& unicode, bool marks_join)
      : unicode_(&unicode), marks_join_(marks_join) {
    for (uint32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = fold(unicode.char_class(c));
  }

  // The end of the piece that begins at p; p < end, valid UTF-8.
  [[nodiscard]] const uint8_t* piece_end(const uint8_t* p, const uint8_t* end) const {
    const Char first = read(p);
    const uint8_t* next = p + first.bytes;
    switch (first.char_class) {
      case CharClass::kLetter:
        return skip(next, end, CharClass::kLetter);
      case CharClass::kNumber:
        return next;
      case CharClass::kNewline:
        return space_end(p, end);
      case CharClass::kSpace:
        if (next == end) return end;
        switch (read(next).char_class) {
          case CharClass::kLetter:
            return skip(next, end, CharClass::kLetter);
          case CharClass::kOther:
            if (*p == ' ') return punctuation_end(next, end);
            [[fallthrough]];
          default:
            return space_end(p, end);
        }
      default:
        break;
    }
    if (*p == '\'') {
      const size_t bytes = contraction_bytes(p, end);
      if (bytes != 0) return p + bytes;
    }
    if (next < end && read(next).char_class == CharClass::kLetter) {
      return skip(next, end, CharClass::kLetter);
    }
    return punctuation_end(p, end);
  }

 private:
  struct Char {
    CharClass char_class;
    uint32_t bytes;
  };

  // Marks are letters for the one pattern and punctuation for the other.
  [[nodiscard]] CharClass fold(CharClass c) const {
    if (c != CharClass::kMark) return c;
    return marks_join_ ? CharClass::kLetter : CharClass::kOther;
  }
  [[nodiscard]] Char read(const uint8_t* p) const {
    if (*p < 0x80) return {ascii_[*p], 1};
    const CodePoint c = read_valid(p);
    return {fold(unicode_->char_class(c.value)), c.bytes};
  }
  // Past all characters of a class.
  [[nodiscard]] const uint8_t* skip(const uint8_t* p, const uint8_t* end, CharClass wanted) const {
    while (p < end) {
      const Char c = read(p);
      if (c.char_class != wanted) break;
      p += c.bytes;
    }
    return p;
  }
  [[nodiscard]] const uint8_t* punctuation_end(const uint8_t* p, const uint8_t* end) const {
    p = skip(p, end, CharClass::kOther);
    while (p < end && (*p == '\r' || *p == '\n')) ++p;
    return p;
  }
  // Alternatives 5 to 7 for white space at p that no word or punctuation takes along.
  [[nodiscard]] const uint8_t* space_end(const uint8_t* p, const uint8_t* end) const {
    const uint8_t* begin = p;
    const uint8_t* last_newline_end = nullptr;
    const uint8_t* last_char = p;
    while (p < end) {
      const Char c = read(p);
      if (c.char_class != CharClass::kSpace && c.char_class != CharClass::kNewline) break;
      last_char = p;
      p += c.bytes;
      if (c.char_class == CharClass::kNewline) last_newline_end = p;
    }
    if (last_newline_end != nullptr) return last_newline_end;
    return p == end || last_char == begin ? p : last_char;
  }
  // 0 when the apostrophe at p begins none.
  static size_t contraction_bytes(const uint8_t* p, const uint8_t* end) {
    const auto lower = [p](size_t i) { return static_cast<char>(p[i] | 0x20); };
    const ptrdiff_t left = end - p;
    if (left < 2) return 0;
    const char a = lower(1);
    if (p[1] < 0x80 && (a == 's' || a == 't' || a == 'm' || a == 'd')) return 2;
    if (left < 3) return 0;
    if (p[1] == 0xC5 && p[2] == 0xBF) return 3;  // U+017F, the long s
    if (p[1] >= 0x80 || p[2] >= 0x80) return 0;
    const char b = lower(2);
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
  }

  const UnicodeData* unicode_;
  bool marks_join_;
  std::array<CharClass, 128> ascii_{};
};

}  // namespace tandem::text
