// SPDX-License-Identifier: Apache-2.0
#include "serve/http_head.h"

#include <algorithm>

namespace tandem::serve {
namespace {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
constexpr bool is_alphanumeric(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool is_lower_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f');
}

// pchar of RFC 3986 without '%', and '/'.
constexpr bool is_path_char(char c) {
  return is_alphanumeric(c) ||
         std::string_view("-._~!$&'()*+,;=:@/").find(c) != std::string_view::npos;
}
constexpr bool is_host_char(char c) {
  return is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

// CTL except HTAB: nothing of the kind belongs in a line of a head.
constexpr bool is_control(char c) {
  const auto u = static_cast<unsigned char>(c);
  return (u < 0x20 && u != '\t') || u == 0x7f;
}

template <bool (*Allowed)(char)>
bool consists_of(std::string_view text) {
  return std::all_of(text.begin(), text.end(), Allowed);
}

bool is_valid_port(std::string_view port) {
  if (port.empty() || port.size() > 5 || !consists_of<is_digit>(port)) return false;
  int value = 0;
  for (const char c : port) value = 10 * value + (c - '0');
  return value <= 65535;
}

}  // namespace

HeadScanner::Step HeadScanner::scan(std::string_view bytes, const HttpLimits& limits) {
  // A TLS greeting or other binary has no line end to wait for.
  if (!bytes.empty() && !is_alphanumeric(bytes[0])) return {.refusal = Refusal::kBadRequestLine};
  for (;;) {
    const size_t end = bytes.find('\n', scanned_);
    const size_t seen = end == std::string_view::npos ? bytes.size() : end + 1;
    if (seen > limits.head_bytes) return {.refusal = Refusal::kHeadTooLarge};
    scanned_ = seen;
    if (end == std::string_view::npos) return {};
    std::string_view line = bytes.substr(line_begin_, end - line_begin_);
    const Refusal malformed = line_count_ == 0 ? Refusal::kBadRequestLine : Refusal::kBadField;
    if (!line.ends_with('\r')) return {.refusal = malformed};
    line.remove_suffix(1);
    line_begin_ = seen;
    if (line.empty() && line_count_ > 0) return {.head_bytes = seen};
    if (std::any_of(line.begin(), line.end(), is_control)) return {.refusal = malformed};
    if (line_count_ == 0) {
      if (const auto refusal = check_request_line(line)) return {.refusal = refusal};
    } else if (line[0] == ' ' || line[0] == '\t') {
      return {.refusal = Refusal::kBadField};  // obs-fold
    }
    // The request line is line 0, so the number of a line counts the fields so far.
    if (line_count_ > limits.field_count) return {.refusal = Refusal::kHeadTooLarge};
    ++line_count_;
  }
}

std::optional<Refusal> check_request_line(std::string_view line) {
  constexpr std::string_view kVersion = " HTTP/1.1";
  if (line.size() < kVersion.size()) return Refusal::kBadRequestLine;
  const std::string_view version = line.substr(line.size() - kVersion.size());
  if (version == kVersion) return std::nullopt;
  const bool is_other_version = version.starts_with(" HTTP/") && is_digit(version[6]) &&
                                version[7] == '.' && is_digit(version[8]);
  return is_other_version ? Refusal::kVersion : Refusal::kBadRequestLine;
}

std::optional<std::string_view> path_of_target(std::string_view target) {
  const size_t query = target.find('?');
  const std::string_view path = target.substr(0, query);
  if (!path.starts_with('/') || !consists_of<is_path_char>(path)) return std::nullopt;
  for (size_t begin = 1; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    const bool is_last = end == path.size();
    if ((segment.empty() && !is_last) || segment == "." || segment == "..") return std::nullopt;
    begin = end + 1;
  }
  if (query != std::string_view::npos) {
    const auto is_query_char = [](char c) { return c > ' ' && c < 0x7f && c != '#'; };
    if (!std::all_of(target.begin() + static_cast<ptrdiff_t>(query), target.end(), is_query_char)) {
      return std::nullopt;
    }
  }
  return path;
}

bool is_valid_host(std::string_view value) {
  if (value.size() > 255 || value.empty()) return false;
  size_t host_end;
  if (value[0] == '[') {
    host_end = value.find(']');
    if (host_end == std::string_view::npos || host_end < 3) return false;
    const auto is_ipv6_char = [](char c) {
      return is_lower_hex(static_cast<char>(c | 0x20)) || c == ':' || c == '.';
    };
    if (!std::all_of(value.begin() + 1, value.begin() + static_cast<ptrdiff_t>(host_end),
                     is_ipv6_char)) {
      return false;
    }
    ++host_end;
  } else {
    host_end = std::min(value.find(':'), value.size());
    if (host_end == 0 || !consists_of<is_host_char>(value.substr(0, host_end))) return false;
  }
  const std::string_view rest = value.substr(host_end);
  return rest.empty() || (rest[0] == ':' && is_valid_port(rest.substr(1)));
}

bool is_valid_request_id(std::string_view value) {
  const auto is_id_char = [](char c) {
    return is_alphanumeric(c) || c == '.' || c == '_' || c == '-';
  };
  return !value.empty() && value.size() <= 128 &&
         std::all_of(value.begin(), value.end(), is_id_char);
}

bool is_valid_traceparent(std::string_view value) {
  constexpr std::string_view kShape = "00-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";
  return value.size() == kShape.size() &&
         std::equal(value.begin(), value.end(), kShape.begin(), [](char got, char want) {
           return want == 'h' ? is_lower_hex(got) : got == want;
         });
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace tandem::serve
