// SPDX-License-Identifier: Apache-2.0
// Response bytes: heads and chunks appended to the buffer that the connection writes from.
// Source: RFC 9112, sections 4, 6 and 7.1.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::serve {

struct ResponseHead {
  int status = 200;
  std::string_view content_type;
  std::optional<size_t> content_length;  // absent: chunked
  std::string_view request_id;           // valid already
  std::string_view date;                 // "Date: …\r\n"
  std::string_view fixed_fields;         // whole lines, or empty
  bool close = false;
};

inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// `fields` come from handlers: one whose name is not a token, or whose value has a control byte, is
// left out, so that no client text can end a field early. False if one was left out.
bool append_head(std::string& out, const ResponseHead& head,
                 const std::vector<std::pair<std::string, std::string>>& fields = {});

void append_chunk(std::string& out, std::string_view bytes);  // bytes is not empty

// "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", for seconds since 1970.
[[nodiscard]] std::string date_field(long long unix_seconds);

}  // namespace tandem::serve
