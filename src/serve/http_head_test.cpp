// SPDX-License-Identifier: Apache-2.0
#include "serve/http_head.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::serve {
namespace {

TEST(HttpHead, PathIsItsOwnNormalForm) {
  EXPECT_EQ(path_of_target("/"), "/");
  EXPECT_EQ(path_of_target("/v1/models"), "/v1/models");
  EXPECT_EQ(path_of_target("/v1/models/"), "/v1/models/");
  EXPECT_EQ(path_of_target("/v1/models?key=a/../b&x=%2e"), "/v1/models");
  EXPECT_EQ(path_of_target("/a.b/..c/d..?"), "/a.b/..c/d..");
  for (const char* target : {"",
                             "*",
                             "v1",
                             "http://h/v1",
                             "//v1",
                             "/v1//models",
                             "/.",
                             "/..",
                             "/v1/../metrics",
                             "/v1/.",
                             "/v1/./x",
                             "/v1/..?x",
                             "/%2e%2e/metrics",
                             "/v1%2fmodels",
                             "/a%00",
                             "/a%",
                             "/a\\b",
                             "/a b",
                             "/a\tb",
                             "/a#b",
                             "/a?b#c",
                             "/a?b c",
                             "/a?\x80",
                             "/\xc3\xa9",
                             "?/v1",
                             "/a?\x7f"}) {
    EXPECT_FALSE(path_of_target(target)) << target;
  }
}

TEST(HttpHead, HostSyntax) {
  for (const char* host : {"a", "localhost:8000", "127.0.0.1", "a-b.c_d~e", "[::1]", "[::1]:80",
                           "[::ffff:1.2.3.4]:65535", "h:0"}) {
    EXPECT_TRUE(is_valid_host(host)) << host;
  }
  for (const char* host :
       {"",    ":80", "a:",  "a:b",  "a:65536", "a:123456", "a:1:2",  "localhost/v1/models?",
        "a b", "a,b", "a@b", "[::1", "[]",      "[g::]",    "[::1]x", "[::1]:",
        "::1", "a?b", "a#b", "a\\b", "%61"}) {
    EXPECT_FALSE(is_valid_host(host)) << host;
  }
  EXPECT_FALSE(is_valid_host(std::string(256, 'a')));
}

TEST(HttpHead, RequestIdAndTraceparent) {
  EXPECT_TRUE(is_valid_request_id("aZ09._-"));
  EXPECT_TRUE(is_valid_request_id(std::string(128, 'x')));
  EXPECT_FALSE(is_valid_request_id(std::string(129, 'x')));
  EXPECT_FALSE(is_valid_request_id(""));
  EXPECT_FALSE(is_valid_request_id("a b"));
  EXPECT_FALSE(is_valid_request_id("a%0D%0Ab"));
  EXPECT_TRUE(is_valid_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
  EXPECT_FALSE(is_valid_traceparent("00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
  EXPECT_FALSE(is_valid_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1"));
  EXPECT_FALSE(is_valid_traceparent(""));
}

TEST(HttpHead, RequestLine) {
  EXPECT_FALSE(check_request_line("GET / HTTP/1.1"));
  for (const char* line : {"GET / HTTP/1.0", "PRI * HTTP/2.0", "GET / HTTP/9.9"}) {
    EXPECT_EQ(check_request_line(line), Refusal::kVersion) << line;
  }
  for (const char* line : {"", "GET /", "GET / http/1.1", "GET / HTTP/1.1 ", "GET / HTTP/11",
                           "GET / HTTP/1,1", "GET / HTTX/1.1"}) {
    EXPECT_EQ(check_request_line(line), Refusal::kBadRequestLine) << line;
  }
}

// A head is found at the same place however it is cut.
TEST(HttpHead, ScannerTakesAnyPieces) {
  const HttpLimits limits;
  const std::string head = "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\r\n";
  const std::string bytes = head + "rest\r\n\r\n";
  for (size_t first = 0; first < bytes.size(); ++first) {
    HeadScanner scanner;
    const auto early = scanner.scan(std::string_view(bytes).substr(0, first), limits);
    ASSERT_FALSE(early.refusal);
    EXPECT_EQ(early.head_bytes, first >= head.size() ? head.size() : 0) << first;
    if (early.head_bytes > 0) continue;
    EXPECT_EQ(scanner.scan(bytes, limits).head_bytes, head.size()) << first;
  }
}

TEST(HttpHead, ScannerHoldsItsLimits) {
  HttpLimits limits;
  limits.field_count = 3;
  limits.head_bytes = 64;
  const auto scan = [&](const std::string& bytes) { return HeadScanner().scan(bytes, limits); };
  const std::string line = "GET / HTTP/1.1\r\n";
  EXPECT_GT(scan(line + "A: 1\r\nB: 2\r\nC: 3\r\n\r\n").head_bytes, 0u);
  EXPECT_EQ(scan(line + "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n").refusal, Refusal::kHeadTooLarge);
  const std::string fill(64 - line.size() - 7, 'x');
  EXPECT_EQ(scan(line + "A: " + fill + "\r\n\r\n").head_bytes, 64u);
  EXPECT_EQ(scan(line + "A: " + fill + "x\r\n\r\n").refusal, Refusal::kHeadTooLarge);
  EXPECT_EQ(scan(line + "A: " + fill + fill).refusal, Refusal::kHeadTooLarge);  // no end in sight
}

TEST(HttpHead, ScannerRefusesWhatBeastTakes) {
  const HttpLimits limits;
  const std::string line = "GET / HTTP/1.1\r\n";
  using namespace std::string_literals;
  const auto refusal = [&](const std::string& bytes) {
    return HeadScanner().scan(bytes, limits).refusal;
  };
  EXPECT_EQ(refusal(line + "A: b\n\r\n"), Refusal::kBadField);          // bare LF
  EXPECT_EQ(refusal(line + "A: b\r\n c\r\n\r\n"), Refusal::kBadField);  // obs-fold
  EXPECT_EQ(refusal(line + "A: b\r\n\tc\r\n\r\n"), Refusal::kBadField);
  EXPECT_EQ(refusal(line + "A: b\0c\r\n\r\n"s), Refusal::kBadField);
  EXPECT_EQ(refusal(line + "A: b\rc\r\n\r\n"), Refusal::kBadField);
  EXPECT_EQ(refusal("\r\n" + line), Refusal::kBadRequestLine);
  EXPECT_EQ(refusal("\x16\x03\x01"), Refusal::kBadRequestLine);  // TLS, at its first byte
  EXPECT_EQ(refusal("GET /\r\n"), Refusal::kBadRequestLine);     // HTTP/0.9
  EXPECT_EQ(refusal("GET / HTTP/1.1\n"), Refusal::kBadRequestLine);
}

}  // namespace
}  // namespace tandem::serve
