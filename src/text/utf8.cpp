// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

#include <simdjson.h>

namespace tandem::text {
namespace {

enum class Form { kValid, kInvalid, kUnfinished };

struct Sequence {
  Form form;
  size_t bytes;
};

// Continuation bytes that a lead byte asks for; 0 for bytes that can't lead a longer sequence.
int continuation_count(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return 1;
  if (lead >= 0xE0 && lead <= 0xEF) return 2;
  if (lead >= 0xF0 && lead <= 0xF4) return 3;
  return 0;
}

// The second byte's range is narrower after E0 and F0 (overlong), ED (surrogates) and F4 (range).
bool second_byte_fits(uint8_t lead, uint8_t second) {
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

Sequence read_sequence(const uint8_t* p, size_t left) {
  if (p[0] < 0x80) return {Form::kValid, 1};
  const int wanted = continuation_count(p[0]);
  if (wanted == 0) return {Form::kInvalid, 1};
  for (int i = 1; i <= wanted; ++i) {
    const size_t at = static_cast<size_t>(i);
    if (at == left) return {Form::kUnfinished, left};
    const bool fits = i == 1 ? second_byte_fits(p[0], p[1]) : (p[at] & 0xC0) == 0x80;
    if (!fits) return {Form::kInvalid, at};
  }
  return {Form::kValid, static_cast<size_t>(wanted) + 1};
}

}  // namespace

void append_code_point(uint32_t value, std::string& out) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | (value >> 6));
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | (value >> 12));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | (value >> 18));
    put(0x80 | ((value >> 12) & 0x3F));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  return simdjson::validate_utf8(text);
}

size_t append_replacing(std::string_view bytes, std::string& out) {
  const uint8_t* p = as_bytes(bytes.data());
  size_t at = 0;
  size_t copied = 0;  // everything before went to `out`
  while (at < bytes.size()) {
    const Sequence sequence = read_sequence(p + at, bytes.size() - at);
    if (sequence.form == Form::kUnfinished) break;
    if (sequence.form == Form::kInvalid) {
      out.append(bytes.substr(copied, at - copied));
      out.append(kReplacement);
      copied = at + sequence.bytes;
    }
    at += sequence.bytes;
  }
  out.append(bytes.substr(copied, at - copied));
  return at;
}

std::string replace_invalid(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  if (append_replacing(bytes, out) < bytes.size()) out.append(kReplacement);
  return out;
}

}  // namespace tandem::text
