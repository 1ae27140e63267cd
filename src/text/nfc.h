// SPDX-License-Identifier: Apache-2.0
// Unicode Normalization Form C. tokenizer.cpp calls it on every text.
// Source: Unicode Standard Annex #15, sections 1.3 (composition) and 9 (quick check).
#pragma once

#include <string>
#include <string_view>

#include "text/unicode.h"

namespace tandem::text {

// The quick check: true when `text` (valid UTF-8) is surely in NFC. ASCII passes 8 bytes at a time.
[[nodiscard]] bool is_surely_nfc(const UnicodeData& unicode, std::string_view text);

// O(n log n) also for a million combining marks in the worst order; utf8proc's own reordering is
// quadratic there.
[[nodiscard]] std::string to_nfc(const UnicodeData& unicode, std::string_view text);

}  // namespace tandem::text
