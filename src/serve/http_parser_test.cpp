// SPDX-License-Identifier: Apache-2.0
#include "serve/http_parser.h"

#include <gtest/gtest.h>

#include <string>

#include "core/rng.h"

namespace tandem::serve {
namespace {

using Status = HttpParser::Status;

struct Parsed {
  Status status = Status::kNeedMore;
  Refusal refusal{};
  ParsedHead head;
  std::string body;
  size_t consumed = 0;
};

// Feeds `bytes` in pieces whose lengths next_piece() gives, as the connection does.
template <typename NextPiece>
Parsed parse(const std::string& bytes, const HttpLimits& limits, NextPiece next_piece) {
  HttpParser parser(limits);
  Parsed parsed;
  size_t arrived = 0;
  for (;;) {
    const std::string_view rest = std::string_view(bytes).substr(parsed.consumed);
    const HttpParser::Step step = parser.feed(rest.substr(0, arrived - parsed.consumed));
    parsed.consumed += step.consumed;
    parsed.status = step.status;
    parsed.refusal = step.refusal;
    if (step.status == Status::kHead) parsed.head = parser.head();
    if (step.status == Status::kComplete) parsed.body = parser.body();
    if (step.status == Status::kComplete || step.status == Status::kRefused) return parsed;
    if (step.status == Status::kNeedMore) {
      if (arrived == bytes.size()) return parsed;
      arrived = std::min(bytes.size(), arrived + next_piece());
    }
  }
}

Parsed parse(const std::string& bytes, const HttpLimits& limits = {}) {
  return parse(bytes, limits, [&] { return bytes.size(); });
}

TEST(HttpParser, ReadsARequest) {
  const std::string bytes =
      "POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: localhost:8000\r\n"
      "content-type: Application/JSON ; charset=utf-8\r\nAuthorization: Bearer k\r\n"
      "x-request-id: abc-1\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
  const Parsed parsed = parse(bytes + "GET /next");
  EXPECT_EQ(parsed.status, Status::kComplete);
  EXPECT_EQ(parsed.consumed, bytes.size());
  EXPECT_EQ(parsed.head.method, "POST");
  EXPECT_EQ(parsed.head.path, "/v1/chat/completions");
  EXPECT_EQ(parsed.head.content_type, "application/json");
  EXPECT_EQ(parsed.head.authorization, "Bearer k");
  EXPECT_EQ(parsed.head.request_id, "abc-1");
  EXPECT_EQ(parsed.head.content_length, 5u);
  EXPECT_TRUE(parsed.head.has_body);
  EXPECT_FALSE(parsed.head.keep_alive);
  EXPECT_EQ(parsed.body, "hello");
}

TEST(HttpParser, ReadsChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n";
  const Parsed parsed = parse(head + "5;x=y\r\nhello\r\n1\r\n!\r\n0\r\n\r\n");
  EXPECT_EQ(parsed.status, Status::kComplete);
  EXPECT_EQ(parsed.body, "hello!");
  EXPECT_FALSE(parsed.head.content_length);
}

// Where the network cuts must not matter, neither for what is accepted nor for what is refused.
TEST(HttpParser, PiecesDoNotMatter) {
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::vector<std::string> cases = {
      chunked + "5\r\nhello\r\n6;a\r\n world\r\n0\r\n\r\nGET",
      chunked + "5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
      chunked + "5\r\nhelloX",
      chunked + "0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello worldGET",
      "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET",
      "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
  };
  Rng rng(1);
  for (const std::string& bytes : cases) {
    const Parsed whole = parse(bytes);
    for (int i = 0; i < 300; ++i) {
      const Parsed cut = parse(bytes, {}, [&] { return 1 + rng.below(i < 10 ? 1 : 7); });
      ASSERT_EQ(cut.status, whole.status) << bytes;
      ASSERT_EQ(cut.body, whole.body) << bytes;
      if (whole.status == Status::kRefused) {
        ASSERT_EQ(cut.refusal, whole.refusal) << bytes;
      }
      if (whole.status == Status::kComplete) {
        ASSERT_EQ(cut.consumed, whole.consumed) << bytes;
      }
    }
  }
}

struct RefusedCase {
  const char* what;
  std::string bytes;
  Refusal refusal;
};

std::vector<RefusedCase> refused_cases() {
  const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n";
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string extension(100 * 1024, 'e');
  return {
      {"no Host", "GET / HTTP/1.1\r\nA: b\r\n\r\n", Refusal::kBadHost},
      {"two Hosts", get + "Host: a\r\n\r\n", Refusal::kBadHost},
      {"path in Host", "GET / HTTP/1.1\r\nHost: localhost/v1/models?\r\n\r\n", Refusal::kBadHost},
      {"absolute form", "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::kBadTarget},
      {"asterisk form", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::kBadTarget},
      {"dots", "GET /v1/../metrics HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::kBadTarget},
      {"CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::kBadMethod},
      {"TRACE", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::kBadMethod},
      {"long target", "GET /" + std::string(5000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n",
       Refusal::kTargetTooLong},
      {"space before colon", get + "A : b\r\n\r\n", Refusal::kBadField},
      {"no colon", get + "Ab\r\n\r\n", Refusal::kBadField},
      {"empty name", get + ": b\r\n\r\n", Refusal::kBadField},
      {"two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::kBadTarget},
      {"bad method", "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::kBadRequestLine},
      {"length -2", post + "Content-Length: -2\r\n\r\n", Refusal::kBadFraming},
      {"length +3", post + "Content-Length: +3\r\n\r\n", Refusal::kBadFraming},
      {"length of 23 digits", post + "Content-Length: " + std::string(23, '9') + "\r\n\r\n",
       Refusal::kBadFraming},
      {"length 0x3", post + "Content-Length: 0x3\r\n\r\n", Refusal::kBadFraming},
      {"length 3, 3", post + "Content-Length: 3, 3\r\n\r\n", Refusal::kBadFraming},
      {"no length", post + "Content-Length:\r\n\r\n", Refusal::kBadFraming},
      {"two lengths", post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n",
       Refusal::kBadFraming},
      {"equal lengths", post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\n",
       Refusal::kBadFraming},
      {"length over the limit", post + "Content-Length: 33554433\r\n\r\n", Refusal::kBodyTooLarge},
      {"length then chunked", post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
       Refusal::kBadFraming},
      {"chunked then length", post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
       Refusal::kBadFraming},
      {"xchunked", post + "Transfer-Encoding: xchunked\r\n\r\n", Refusal::kTransferEncoding},
      {"chunked, identity", post + "Transfer-Encoding: chunked, identity\r\n\r\n",
       Refusal::kTransferEncoding},
      {"gzip, chunked", post + "Transfer-Encoding: gzip, chunked\r\n\r\n",
       Refusal::kTransferEncoding},
      {"chunked twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
       Refusal::kBadFraming},
      {"gzip", post + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\n",
       Refusal::kContentEncoding},
      {"two types", post + "Content-Type: a/b\r\nContent-Type: a/b\r\n\r\n", Refusal::kBadField},
      {"expect 200-ok", post + "Expect: 200-ok\r\n\r\n", Refusal::kExpectation},
      {"chunk -2", chunked + "-2\r\n", Refusal::kBadChunk},
      {"chunk 0x3", chunked + "0x3\r\nabc\r\n", Refusal::kBadChunk},
      {"chunk 2^64", chunked + "10000000000000000\r\n", Refusal::kBadChunk},
      {"chunk over the limit", chunked + "2000001\r\n", Refusal::kBodyTooLarge},
      {"empty chunk size", chunked + "\r\nabc\r\n", Refusal::kBadChunk},
      {"chunk with bare LF", chunked + "3\nabc\r\n", Refusal::kBadChunk},
      {"chunk too long", chunked + "3\r\nabcd\r\n", Refusal::kBadChunk},
      {"100 KB extension", chunked + "3;" + extension + "\r\nabc\r\n0\r\n\r\n", Refusal::kBadChunk},
      {"100 KB extension of the last", chunked + "0;" + extension + "\r\n\r\n", Refusal::kBadChunk},
      {"endless extension", chunked + "3;" + extension, Refusal::kBadChunk},
      {"a trailer", chunked + "0\r\nA: b\r\n\r\n", Refusal::kBadChunk},
      {"100 KB trailers", chunked + "0\r\nA: " + extension + "\r\n\r\n", Refusal::kBadChunk},
      {"length as a trailer", chunked + "0\r\nContent-Length: 3\r\n\r\n", Refusal::kBadChunk},
  };
}

TEST(HttpParser, Refuses) {
  for (const RefusedCase& refused : refused_cases()) {
    SCOPED_TRACE(refused.what);
    const Parsed parsed = parse(refused.bytes);
    ASSERT_EQ(parsed.status, Status::kRefused);
    EXPECT_EQ(parsed.refusal, refused.refusal)
        << refusal_info(parsed.refusal).code << " for " << refusal_info(refused.refusal).code;
  }
}

// Chunks that sum up to more than the limit, each of them under it.
TEST(HttpParser, ChunksTogetherHaveTheLimitOfABody) {
  HttpLimits limits;
  limits.body_bytes = 1000;
  std::string bytes = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 10; ++i) bytes += "64\r\n" + std::string(100, 'x') + "\r\n";
  EXPECT_EQ(parse(bytes + "0\r\n\r\n", limits).body.size(), 1000u);
  const Parsed over = parse(bytes + "1\r\nx\r\n", limits);
  EXPECT_EQ(over.status, Status::kRefused);
  EXPECT_EQ(over.refusal, Refusal::kBodyTooLarge);
}

TEST(HttpParser, ManyTinyChunksAreOneBody) {
  std::string bytes = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 1'000'000; ++i) bytes += "6\r\nabcdef\r\n";
  const Parsed parsed = parse(bytes + "0\r\n\r\n", {}, [] { return size_t{64} * 1024; });
  EXPECT_EQ(parsed.status, Status::kComplete);
  EXPECT_EQ(parsed.body.size(), 6'000'000u);
}

TEST(HttpParser, ValuesThatAreNotValidAreDropped) {
  const Parsed parsed = parse(
      "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: a b\r\ntraceparent: 00-1\r\n"
      "X-Forwarded-For: ,\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n");
  EXPECT_EQ(parsed.status, Status::kComplete);
  EXPECT_EQ(parsed.head.request_id, "");
  EXPECT_EQ(parsed.head.traceparent, "");
  EXPECT_EQ(parsed.head.authorization, "");
}

}  // namespace
}  // namespace tandem::serve
