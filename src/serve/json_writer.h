// SPDX-License-Identifier: Apache-2.0
// The hand-written part of JSON out: strings of the token path and of the template's context. What
// is not hot goes through nlohmann. Called by openai_*.cpp and gate_messages.cpp.
#pragma once

#include <string>
#include <string_view>

namespace tandem::serve {

// Appends `text` with JSON's escapes and without quotes. Valid UTF-8 passes as it is: the gate has
// checked what comes from clients, the detokeniser emits nothing else.
void append_json_escaped(std::string& out, std::string_view text);

// With quotes.
void append_json_string(std::string& out, std::string_view text);

}  // namespace tandem::serve
