// SPDX-License-Identifier: Apache-2.0
#include "serve/http_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>

#include "serve/http_error.h"

namespace tandem::serve {
namespace {

// RFC 9110 token, without the marks that no field name of ours has.
bool is_field_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

bool is_field_value(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c != 0x7f; });
}

}  // namespace

bool append_head(std::string& out, const ResponseHead& head,
                 const std::vector<std::pair<std::string, std::string>>& fields) {
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "HTTP/1.1 {} {}\r\n", head.status, reason_phrase(head.status));
  if (head.content_length) {
    fmt::format_to(to, "Content-Length: {}\r\n", *head.content_length);
  } else {
    // Proxies must neither store nor collect a stream.
    out += "Transfer-Encoding: chunked\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  }
  if (is_field_value(head.content_type) && !head.content_type.empty()) {
    fmt::format_to(to, "Content-Type: {}\r\n", head.content_type);
  }
  fmt::format_to(to, "X-Request-Id: {}\r\n{}{}{}", head.request_id, head.date, head.fixed_fields,
                 head.close ? "Connection: close\r\n" : "");
  bool all_fit = true;
  for (const auto& [name, value] : fields) {
    const bool fits = is_field_name(name) && is_field_value(value);
    if (fits) fmt::format_to(to, "{}: {}\r\n", name, value);
    all_fit = all_fit && fits;
  }
  out += "\r\n";
  return all_fit;
}

void append_chunk(std::string& out, std::string_view bytes) {
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", bytes.size());
  out += bytes;
  out += "\r\n";
}

std::string date_field(long long unix_seconds) {
  using std::chrono::sys_seconds;
  constexpr std::array<std::string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed",
                                                     "Thu", "Fri", "Sat"};
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const sys_seconds time{std::chrono::seconds(unix_seconds)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("Date: {}, {:02} {} {:04} {:02}:{:02}:{:02} GMT\r\n",
                     kDays[std::chrono::weekday(day).c_encoding()], unsigned(date.day()),
                     kMonths[unsigned(date.month()) - 1], int(date.year()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count());
}

}  // namespace tandem::serve
