// SPDX-License-Identifier: Apache-2.0
#include "text/nfc.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "text/utf8.h"

namespace tandem::text {
namespace {

// Sorts every run of characters with a combining class by that class, keeping equal ones in order.
void reorder(const UnicodeData& unicode, std::vector<uint32_t>& text) {
  const auto ccc = [&unicode](uint32_t c) { return unicode.combining_class(c); };
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if(begin, text.end(), [&](uint32_t c) { return ccc(c) != 0; });
    const auto end = std::find_if(begin, text.end(), [&](uint32_t c) { return ccc(c) == 0; });
    std::stable_sort(begin, end, [&](uint32_t a, uint32_t b) { return ccc(a) < ccc(b); });
    begin = end;
  }
}

// In place: a character joins the last starter if nothing between the two has a combining class of
// zero or one as high as its own.
void compose(const UnicodeData& unicode, std::vector<uint32_t>& text) {
  size_t size = 0;
  size_t starter = SIZE_MAX;
  uint8_t last_ccc = 0;  // of text[size - 1], where that is not the starter
  for (const uint32_t c : text) {
    const uint8_t ccc = unicode.combining_class(c);
    if (starter != SIZE_MAX && (size == starter + 1 || last_ccc < ccc)) {
      const uint32_t composite = unicode.compose(text[starter], c);
      if (composite != 0) {
        text[starter] = composite;
        continue;
      }
    }
    if (ccc == 0) starter = size;
    last_ccc = ccc;
    text[size++] = c;
  }
  text.resize(size);
}

}  // namespace

bool is_surely_nfc(const UnicodeData& unicode, std::string_view text) {
  const uint8_t* p = as_bytes(text.data());
  const uint8_t* end = p + text.size();
  uint8_t last_ccc = 0;
  while (p < end) {
    if (*p < 0x80) {
      last_ccc = 0;
      ++p;
      uint64_t word = 0;
      while (end - p >= 8) {
        std::memcpy(&word, p, 8);
        if ((word & 0x8080808080808080U) != 0) break;
        p += 8;
      }
      continue;
    }
    const CodePoint c = read_valid(p);
    p += c.bytes;
    if (!unicode.may_change(c.value)) {
      last_ccc = 0;
      continue;
    }
    const uint8_t ccc = unicode.combining_class(c.value);
    if (unicode.needs_nfc(c.value) || (ccc != 0 && ccc < last_ccc)) return false;
    last_ccc = ccc;
  }
  return true;
}

std::string to_nfc(const UnicodeData& unicode, std::string_view text) {
  std::vector<uint32_t> code_points;
  code_points.reserve(text.size());
  const uint8_t* p = as_bytes(text.data());
  const uint8_t* end = p + text.size();
  while (p < end) {
    const CodePoint c = read_valid(p);
    unicode.decompose(c.value, code_points);
    p += c.bytes;
  }
  reorder(unicode, code_points);
  compose(unicode, code_points);
  std::string out;
  out.reserve(text.size());
  for (const uint32_t c : code_points) append_code_point(c, out);
  return out;
}

}  // namespace tandem::text
