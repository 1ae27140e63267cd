// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <string_view>

namespace tandem::text {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr uint32_t kHangulBase = 0xAC00, kHangulCount = 11172;
constexpr uint32_t kLBase = 0x1100, kLCount = 19, kVBase = 0x1161, kVCount = 21, kTBase = 0x11A7,
                   kTCount = 28;

struct ClassRange {
  uint32_t first, last;
  CharClass char_class;
};

// Letters, marks and numbers that Unicode 15.1 and 16.0 added, from the general categories of the
// Unicode Character Database 16.0. A newer utf8proc knows them itself; then this changes nothing.
constexpr ClassRange kNewerThanUnicode15[] = {
    {0x897, 0x897, CharClass::kMark},       {0x1C89, 0x1C8A, CharClass::kLetter},
    {0xA7CB, 0xA7CD, CharClass::kLetter},   {0xA7DA, 0xA7DC, CharClass::kLetter},
    {0x105C0, 0x105F3, CharClass::kLetter}, {0x10D40, 0x10D49, CharClass::kNumber},
    {0x10D4A, 0x10D65, CharClass::kLetter}, {0x10D69, 0x10D6D, CharClass::kMark},
    {0x10D6F, 0x10D85, CharClass::kLetter}, {0x10EC2, 0x10EC4, CharClass::kLetter},
    {0x10EFC, 0x10EFC, CharClass::kMark},   {0x11380, 0x11389, CharClass::kLetter},
    {0x1138B, 0x1138B, CharClass::kLetter}, {0x1138E, 0x1138E, CharClass::kLetter},
    {0x11390, 0x113B5, CharClass::kLetter}, {0x113B7, 0x113B7, CharClass::kLetter},
    {0x113B8, 0x113C0, CharClass::kMark},   {0x113C2, 0x113C2, CharClass::kMark},
    {0x113C5, 0x113C5, CharClass::kMark},   {0x113C7, 0x113CA, CharClass::kMark},
    {0x113CC, 0x113D0, CharClass::kMark},   {0x113D1, 0x113D1, CharClass::kLetter},
    {0x113D2, 0x113D2, CharClass::kMark},   {0x113D3, 0x113D3, CharClass::kLetter},
    {0x113E1, 0x113E2, CharClass::kMark},   {0x116D0, 0x116E3, CharClass::kNumber},
    {0x11BC0, 0x11BE0, CharClass::kLetter}, {0x11BF0, 0x11BF9, CharClass::kNumber},
    {0x11F5A, 0x11F5A, CharClass::kMark},   {0x13460, 0x143FA, CharClass::kLetter},
    {0x16100, 0x1611D, CharClass::kLetter}, {0x1611E, 0x1612F, CharClass::kMark},
    {0x16130, 0x16139, CharClass::kNumber}, {0x16D40, 0x16D6C, CharClass::kLetter},
    {0x16D70, 0x16D79, CharClass::kNumber}, {0x18CFF, 0x18CFF, CharClass::kLetter},
    {0x1CCF0, 0x1CCF9, CharClass::kNumber}, {0x1E5D0, 0x1E5ED, CharClass::kLetter},
    {0x1E5EE, 0x1E5EF, CharClass::kMark},   {0x1E5F0, 0x1E5F0, CharClass::kLetter},
    {0x1E5F1, 0x1E5FA, CharClass::kNumber}, {0x2EBF0, 0x2EE5D, CharClass::kLetter}};

struct Range {
  uint32_t first, last;
};

// Marks with a combining class (and U+11938 with a decomposition) that Unicode 10 to 15 added. The
// NFC of the tokenizers package doesn't know them: there they are plain starters.
constexpr Range kNewerThanUnicode9[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}};

bool is_space(uint32_t c) {  // the property White_Space
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

CharClass class_of(uint32_t c) {
  if (c == '\r' || c == '\n') return CharClass::kNewline;
  if (is_space(c)) return CharClass::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return CharClass::kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    default:
      return CharClass::kOther;
  }
}

bool is_newer_than_unicode9(uint32_t c) {
  return std::ranges::any_of(kNewerThanUnicode9,
                             [c](Range r) { return c >= r.first && c <= r.last; });
}

bool is_hangul_syllable(uint32_t c) {
  return c >= kHangulBase && c < kHangulBase + kHangulCount;
}

bool is_surrogate(uint32_t c) {
  return c >= 0xD800 && c < 0xE000;
}

// What utf8proc makes of one code point under `options`; empty on its errors.
std::vector<uint32_t> map_one(uint32_t c, int options) {
  utf8proc_int32_t buffer[32];  // the longest canonical decomposition has 4 code points
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, 32,
                              static_cast<utf8proc_option_t>(options), &boundary);
  if (count < 0 || count > 32) return {};
  return {buffer, buffer + count};
}

}  // namespace

void ByteTable::build(const std::vector<uint8_t>& values) {
  const std::string_view all(reinterpret_cast<const char*>(values.data()), values.size());
  std::unordered_map<std::string_view, uint16_t> seen;
  for (size_t page = 0; page < page_of_.size(); ++page) {
    const std::string_view bytes = all.substr(page * kPageSize, kPageSize);
    const auto [entry, is_new] = seen.try_emplace(bytes, static_cast<uint16_t>(seen.size()));
    if (is_new) pages_.insert(pages_.end(), bytes.begin(), bytes.end());
    page_of_[page] = entry->second;
  }
}

UnicodeData::UnicodeData() {
  std::vector<uint8_t> flags(kCodePoints);
  std::vector<uint8_t> combining(kCodePoints);
  for (uint32_t c = 0; c < kCodePoints; ++c) {
    flags[c] = static_cast<uint8_t>(class_of(c));
    combining[c] = static_cast<uint8_t>(
        utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class);
  }
  for (const ClassRange& r : kNewerThanUnicode15) {
    for (uint32_t c = r.first; c <= r.last; ++c) flags[c] = static_cast<uint8_t>(r.char_class);
  }
  for (const Range& r : kNewerThanUnicode9) {
    for (uint32_t c = r.first; c <= r.last; ++c) combining[c] = 0;
  }
  combining_.build(combining);
  add_decompositions(flags);
  for (uint32_t c = 0; c < kCodePoints; ++c) {
    if (combining[c] != 0) flags[c] |= kHasCcc;
  }
  flags_.build(flags);
}

// A character needs_nfc when it decomposes for good, or when it can be the second of a pair that
// composes. Composition pairs are the two-part decompositions that utf8proc's NFC puts together
// again, which leaves out the composition exclusions.
void UnicodeData::add_decompositions(std::vector<uint8_t>& flags) {
  for (uint32_t c = 0x80; c < kCodePoints; ++c) {
    if (is_hangul_syllable(c) || is_surrogate(c) || is_newer_than_unicode9(c)) continue;
    std::vector<uint32_t> full = map_one(c, UTF8PROC_DECOMPOSE);
    if (full.empty() || (full.size() == 1 && full[0] == c)) continue;
    std::vector<utf8proc_int32_t> composed(full.begin(), full.end());
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        composed.data(), static_cast<utf8proc_ssize_t>(composed.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const bool composes = count == 1 && static_cast<uint32_t>(composed[0]) == c;
    if (composes) {
      // The first part of the pair is itself the composite of all but the last.
      const uint32_t second = full.back();
      std::vector<utf8proc_int32_t> head(full.begin(), full.end() - 1);
      const utf8proc_ssize_t head_count = utf8proc_normalize_utf32(
          head.data(), static_cast<utf8proc_ssize_t>(head.size()),
          static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
      if (head_count == 1) {
        composites_[uint64_t{static_cast<uint32_t>(head[0])} << 32 | second] = c;
      }
      flags[second] |= kNeedsNfc;
    } else {
      flags[c] |= kNeedsNfc;
    }
    decomposed_to_[c] = std::move(full);
  }
  for (uint32_t c = kVBase; c < kVBase + kVCount; ++c) flags[c] |= kNeedsNfc;
  for (uint32_t c = kTBase + 1; c < kTBase + kTCount; ++c) flags[c] |= kNeedsNfc;
}

void UnicodeData::decompose(uint32_t code_point, std::vector<uint32_t>& out) const {
  if (is_hangul_syllable(code_point)) {
    const uint32_t index = code_point - kHangulBase;
    out.push_back(kLBase + index / (kVCount * kTCount));
    out.push_back(kVBase + index % (kVCount * kTCount) / kTCount);
    if (index % kTCount != 0) out.push_back(kTBase + index % kTCount);
    return;
  }
  const auto found = code_point < 0x80 ? decomposed_to_.end() : decomposed_to_.find(code_point);
  if (found == decomposed_to_.end()) {
    out.push_back(code_point);
  } else {
    out.insert(out.end(), found->second.begin(), found->second.end());
  }
}

uint32_t UnicodeData::compose(uint32_t first, uint32_t second) const {
  if (first >= kLBase && first < kLBase + kLCount && second >= kVBase &&
      second < kVBase + kVCount) {
    return kHangulBase + ((first - kLBase) * kVCount + (second - kVBase)) * kTCount;
  }
  if (is_hangul_syllable(first) && (first - kHangulBase) % kTCount == 0 && second > kTBase &&
      second < kTBase + kTCount) {
    return first + (second - kTBase);
  }
  const auto found = composites_.find(uint64_t{first} << 32 | second);
  return found == composites_.end() ? 0 : found->second;
}

}  // namespace tandem::text
