// SPDX-License-Identifier: Apache-2.0
// The strict rules for a request head that Boost.Beast's parser does not have, as pure functions
// over bytes. The parser (http_parser.cpp) is the only caller: every head passes here before and
// while Beast reads it. docs/http.md lists what Beast 1.74 would let through.
// Source: RFC 9112 (HTTP/1.1 messages), RFC 9110 (fields), RFC 3986 (authority and path).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "serve/http_error.h"
#include "serve/http_limits.h"

namespace tandem::serve {

// Finds the end of a head in bytes that arrive piece by piece; each byte is looked at once.
class HeadScanner {
 public:
  struct Step {
    size_t head_bytes = 0;  // > 0: the head is complete and that long
    std::optional<Refusal> refusal;
  };

  // `bytes` begins with the request line and is what the last call saw, longer. Refuses lines that
  // do not end in CRLF, control bytes, folded fields, another version than HTTP/1.1, too many
  // fields and too many bytes.
  [[nodiscard]] Step scan(std::string_view bytes, const HttpLimits& limits);

 private:
  size_t line_begin_ = 0, scanned_ = 0, line_count_ = 0;
};

// "POST /v1/x HTTP/1.1" without its CRLF: shape and version; method and target are checked later.
[[nodiscard]] std::optional<Refusal> check_request_line(std::string_view line);

// The path of an origin-form target, without its query, if the path is its own normal form: it
// begins with '/', has no empty, "." or ".." segment and no percent-encoded byte. Else nothing.
[[nodiscard]] std::optional<std::string_view> path_of_target(std::string_view target);

// host [":" port], host a name, an IPv4 address or an IPv6 address in brackets. Never used further.
[[nodiscard]] bool is_valid_host(std::string_view value);

// 1 to 128 of [A-Za-z0-9._-]: safe to send back, log and use as a label.
[[nodiscard]] bool is_valid_request_id(std::string_view value);

// W3C Trace Context version 00: "00-<32 hex>-<16 hex>-<2 hex>" in lower case.
[[nodiscard]] bool is_valid_traceparent(std::string_view value);

// ASCII letters only; field values are compared without case where RFC 9110 says so.
[[nodiscard]] bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace tandem::serve
