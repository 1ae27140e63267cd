// SPDX-License-Identifier: Apache-2.0
// UTF-8: reading code points of checked text, and replacing what is not UTF-8. The files of this
// folder call it. Source: The Unicode Standard 15.0, tables 3-6 and 3-7; replacement by maximal
// subparts (section 3.9), as Python's errors="replace" and the WHATWG Encoding Standard do it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct CodePoint {
  uint32_t value;
  uint32_t bytes;  // 1 .. 4
};

// The code point at `p` of valid UTF-8.
inline CodePoint read_valid(const uint8_t* p) {
  const uint32_t a = p[0];
  if (a < 0x80) return {a, 1};
  if (a < 0xE0) return {((a & 0x1FU) << 6) | (p[1] & 0x3FU), 2};
  if (a < 0xF0) return {((a & 0x0FU) << 12) | ((p[1] & 0x3FU) << 6) | (p[2] & 0x3FU), 3};
  return {((a & 0x07U) << 18) | ((p[1] & 0x3FU) << 12) | ((p[2] & 0x3FU) << 6) | (p[3] & 0x3FU), 4};
}

inline const uint8_t* as_bytes(const char* p) {
  return reinterpret_cast<const uint8_t*>(p);
}

void append_code_point(uint32_t value, std::string& out);

[[nodiscard]] bool is_valid_utf8(std::string_view text);

// Appends `bytes` to `out`, every maximal ill-formed part as one U+FFFD. A sequence that is legal
// so far but ends with the input (at most 3 bytes) is not consumed: it may go on in bytes that
// follow. Returns the bytes consumed.
size_t append_replacing(std::string_view bytes, std::string& out);

// The same for a whole text: an unfinished end becomes U+FFFD too.
[[nodiscard]] std::string replace_invalid(std::string_view bytes);

}  // namespace tandem::text
