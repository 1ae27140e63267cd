// SPDX-License-Identifier: Apache-2.0
#include "serve/http_error.h"

#include <fmt/format.h>

#include <array>

#include "core/check.h"

namespace tandem::serve {
namespace {

constexpr std::string_view kRetryAfter = "Retry-After: 1\r\n";

// In the order of Refusal.
constexpr std::array<RefusalInfo, kRefusalCount> kRefusals = {{
    {400, "bad_request_line", "The request line is not of HTTP/1.1.", ""},
    {400, "bad_header", "A header field is malformed or occurs twice.", ""},
    {400, "bad_host", "The request needs exactly one valid Host field.", ""},
    {400, "bad_target", "The request target must be a plain absolute path.", ""},
    {400, "bad_framing", "Content-Length and Transfer-Encoding do not give one body length.", ""},
    {400, "bad_chunk", "The chunked body is malformed or has trailers.", ""},
    {401, "invalid_api_key", "Incorrect or missing API key.", "WWW-Authenticate: Bearer\r\n"},
    {404, "unknown_url", "There is nothing at this path.", ""},
    {405, "method_not_allowed", "The method is not allowed for this path.", ""},
    {408, "head_timeout", "The request head did not arrive in time.", ""},
    {408, "body_timeout", "The request body did not arrive in time.", ""},
    {413, "body_too_large", "The request body is larger than this server allows.", ""},
    {414, "target_too_long", "The request target is longer than this server allows.", ""},
    {415, "content_encoding", "Compressed request bodies are not supported.", ""},
    {417, "expectation_failed", "Only the expectation 100-continue is supported.", ""},
    {429, "too_many_connections", "This client has too many connections.", kRetryAfter},
    {431, "head_too_large", "The request head is larger than this server allows.", ""},
    {500, "no_answer", "The server could not answer this request.", ""},
    {501, "transfer_encoding", "Only the transfer encoding chunked is supported.", ""},
    {503, "connections_full", "The server has too many connections; retry later.", kRetryAfter},
    {503, "bodies_full", "The server holds too many request bodies; retry later.", kRetryAfter},
    {503, "shutting_down", "The server is shutting down; retry.", kRetryAfter},
    {505, "http_version", "Only HTTP/1.1 is supported.", ""},
}};

std::string_view error_type(int status) {
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

const RefusalInfo& refusal_info(Refusal refusal) {
  return kRefusals[static_cast<size_t>(refusal)];
}

std::string error_body(const RefusalInfo& info) {
  // The texts are constants of this file without a character that JSON escapes.
  return fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":"{}"}}}})",
                     info.message, error_type(info.status), info.code);
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

}  // namespace tandem::serve
