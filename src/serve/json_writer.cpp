// SPDX-License-Identifier: Apache-2.0
#include "serve/json_writer.h"

#include <array>

namespace tandem::serve {
namespace {

// 0: the byte stands for itself; 'u': \u00XX; else the letter after the backslash (RFC 8259, 7).
constexpr std::array<char, 256> make_escapes() {
  std::array<char, 256> table{};
  for (size_t i = 0; i < 0x20; ++i) table[i] = 'u';
  table['\b'] = 'b';
  table['\f'] = 'f';
  table['\n'] = 'n';
  table['\r'] = 'r';
  table['\t'] = 't';
  table['"'] = '"';
  table['\\'] = '\\';
  table[0x7f] = 'u';
  return table;
}
constexpr std::array<char, 256> kEscapes = make_escapes();
constexpr std::string_view kHex = "0123456789abcdef";

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const char escape = kEscapes[byte];
    if (escape == 0) continue;
    out.append(text, begin, i - begin);
    begin = i + 1;
    out.push_back('\\');
    out.push_back(escape);
    if (escape == 'u') {
      out += "00";
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  out.append(text, begin, text.size() - begin);
}

void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  append_json_escaped(out, text);
  out.push_back('"');
}

}  // namespace tandem::serve
