// SPDX-License-Identifier: Apache-2.0
// Hostile bytes on a running server. Each case also checks that a stream of another client, in
// flight meanwhile, is not disturbed and that the server goes on serving.
#include <gtest/gtest.h>

#include <algorithm>

#include "serve/http_client_test.h"

namespace tandem::serve::testing {
namespace {

using namespace std::string_literals;

struct HostileCase {
  const char* name;
  std::string bytes;
  int status;
  const char* code;
  bool closes = true;
};

std::string filled(size_t count, const std::string& piece) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += piece;
  return text;
}

const std::string kLine = "GET /hello HTTP/1.1\r\n", kHost = "Host: a\r\n";
const std::string kEcho = "POST /echo HTTP/1.1\r\nHost: a\r\n";

std::vector<HostileCase> body_cases() {
  const std::string chunked = kEcho + "Transfer-Encoding: chunked\r\n\r\n";
  return {
      // Bodies that are too large or endless.
      {"Length33MB", kEcho + "Content-Length: 34000000\r\n\r\n", 413, "body_too_large"},
      {"Length9Exabytes", kEcho + "Content-Length: 9223372036854775807\r\n\r\n", 413,
       "body_too_large"},
      {"Chunk33MB", chunked + "2100000\r\n", 413, "body_too_large"},
      {"Extension100KB", chunked + "3;" + std::string(100'000, 'e') + "\r\nabc\r\n0\r\n\r\n", 400,
       "bad_chunk"},
      {"Trailers100KB", chunked + "0\r\n" + filled(1000, "A: " + std::string(95, 'b') + "\r\n"),
       400, "bad_chunk"},
      {"Trailer", chunked + "0\r\nA: b\r\n\r\n", 400, "bad_chunk"},
      // Body lengths.
      {"ChunkMinus2", chunked + "-2\r\nabc\r\n", 400, "bad_chunk"},
      {"Chunk0x3", chunked + "0x3\r\nabc\r\n", 400, "bad_chunk"},
      {"Chunk2To64", chunked + "10000000000000000\r\nabc\r\n", 400, "bad_chunk"},
      {"LengthMinus2", kEcho + "Content-Length: -2\r\n\r\n", 400, "bad_framing"},
      {"LengthPlus3", kEcho + "Content-Length: +3\r\n\r\nabc", 400, "bad_framing"},
      {"Length23Digits", kEcho + "Content-Length: 99999999999999999999999\r\n\r\n", 400,
       "bad_framing"},
      {"LengthTwoDiffer", kEcho + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400,
       "bad_framing"},
      {"LengthTwoEqual", kEcho + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400,
       "bad_framing"},
      {"LengthList", kEcho + "Content-Length: 3, 3\r\n\r\nabc", 400, "bad_framing"},
      // Two readings of one message.
      {"Xchunked", kEcho + "Transfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 501,
       "transfer_encoding"},
      {"ChunkedIdentity", kEcho + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501,
       "transfer_encoding"},
      {"LengthAndChunked",
       kEcho + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
       "bad_framing"},
      {"ChunkedAndLength",
       kEcho + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400,
       "bad_framing"},
      {"Gzip", kEcho + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08", 415,
       "content_encoding"},
  };
}

std::vector<HostileCase> head_cases() {
  return {
      // Too large.
      {"Headers400", kLine + kHost + filled(400, "A: b\r\n") + "\r\n", 431, "head_too_large"},
      {"Header1MB", kLine + kHost + "A: " + std::string(1 << 20, 'x'), 431, "head_too_large"},
      {"Target5KB", "GET /" + std::string(5000, 'x') + " HTTP/1.1\r\n" + kHost + "\r\n", 414,
       "target_too_long"},
      // Host and path.
      {"NoHost", kLine + "\r\n", 400, "bad_host"},
      {"TwoHosts", kLine + kHost + kHost + "\r\n", 400, "bad_host"},
      {"HostWithPath", kLine + "Host: localhost/v1/models?\r\n\r\n", 400, "bad_host"},
      {"AbsoluteForm", "GET http://a/hello HTTP/1.1\r\n" + kHost + "\r\n", 400, "bad_target"},
      {"DotDot", "GET /v1/../hello HTTP/1.1\r\n" + kHost + "\r\n", 400, "bad_target"},
      {"EncodedDotDot", "GET /v1/%2e%2e/hello HTTP/1.1\r\n" + kHost + "\r\n", 400, "bad_target"},
      {"EncodedNul", "GET /hello%00 HTTP/1.1\r\n" + kHost + "\r\n", 400, "bad_target"},
      {"EncodedSlash", "GET /v1%2fhello HTTP/1.1\r\n" + kHost + "\r\n", 400, "bad_target"},
      {"DoubleSlash", "GET //hello HTTP/1.1\r\n" + kHost + "\r\n", 400, "bad_target"},
      {"Backslash", "GET /v1\\hello HTTP/1.1\r\n" + kHost + "\r\n", 400, "bad_target"},
      // Lines.
      {"ObsFold", kLine + kHost + "A: b\r\n c\r\n\r\n", 400, "bad_header"},
      {"Nul", kLine + kHost + "A: b\0c\r\n\r\n"s, 400, "bad_header"},
      {"BareLf", kLine + kHost + "A: b\n\r\n", 400, "bad_header"},
      {"BareCr", kLine + kHost + "A: b\rc\r\n\r\n", 400, "bad_header"},
      {"SpaceBeforeColon", kLine + kHost + "A : b\r\n\r\n", 400, "bad_header"},
      {"LeadingEmptyLine", "\r\n" + kLine + kHost + "\r\n", 400, "bad_request_line"},
      {"TlsGreeting", "\x16\x03\x01\x02\x00\x01"s, 400, "bad_request_line"},
      {"Binary", "\xff\xfe\xfd"s, 400, "bad_request_line"},
      // Methods, versions, expectations.
      {"Http10", "GET /hello HTTP/1.0\r\n" + kHost + "\r\n", 505, "http_version"},
      {"Http09", "GET /hello\r\n", 400, "bad_request_line"},
      {"Http2Preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version"},
      {"Trace", "TRACE /hello HTTP/1.1\r\n" + kHost + "\r\n", 405, "method_not_allowed"},
      {"Connect", "CONNECT a:443 HTTP/1.1\r\n" + kHost + "\r\n", 405, "method_not_allowed"},
      {"Delete", "DELETE /hello HTTP/1.1\r\n" + kHost + "\r\n", 405, "method_not_allowed", false},
      {"UnknownMethod", "FROB /hello HTTP/1.1\r\n" + kHost + "\r\n", 405, "method_not_allowed",
       false},
      {"UnknownPath", "GET /nothing HTTP/1.1\r\n" + kHost + "\r\n", 404, "unknown_url", false},
      {"UnknownPathWithBody", post("/nothing", "abc"), 404, "unknown_url"},
      {"Expect200", kEcho + "Expect: 200-ok\r\nContent-Length: 3\r\n\r\n", 417,
       "expectation_failed"},
  };
}

std::vector<HostileCase> hostile_cases() {
  std::vector<HostileCase> cases = head_cases();
  for (HostileCase& body_case : body_cases()) cases.push_back(std::move(body_case));
  return cases;
}

class Hostile : public ::testing::TestWithParam<HostileCase> {};

TEST_P(Hostile, IsAnsweredAndHarmsNobody) {
  const HostileCase& hostile = GetParam();
  TestServer server;
  Client neighbour(server.port());
  ASSERT_TRUE(neighbour.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(1));
  server.run([&] {
    server.held()[0]->begin_stream("text/event-stream");
    server.held()[0]->send("data: 1\n\n");
  });

  Client client(server.port());
  client.send(hostile.bytes);  // may end early: the server does not wait for the last byte
  const Response response = client.read_response();
  EXPECT_EQ(response.status, hostile.status);
  EXPECT_NE(response.body.find(R"("code":")"s + hostile.code + '"'), std::string::npos)
      << response.body;
  EXPECT_TRUE(response.body.starts_with(R"({"error":{"message":")")) << response.body;
  EXPECT_EQ(response.field("Content-Type"), "application/json");
  EXPECT_EQ(response.field("Connection"), hostile.closes ? "close" : "");
  if (response.status == 405) {
    EXPECT_NE(response.field("Allow"), "");
  }
  if (hostile.closes) {
    client.half_close();
    EXPECT_TRUE(client.is_closed_by_server());
    EXPECT_TRUE(client.received().empty()) << "a second answer: " << client.received();
  } else {
    ASSERT_TRUE(client.send(get("/hello")));
    EXPECT_EQ(client.read_response().status, 200);
  }

  server.run([&] {
    EXPECT_FALSE(server.held()[0]->gone());
    server.held()[0]->send("data: 2\n\n");
    server.held()[0]->end();
  });
  const Response undisturbed = neighbour.read_response();
  EXPECT_EQ(undisturbed.body, "data: 1\n\ndata: 2\n\n");
  EXPECT_FALSE(undisturbed.closed);
  server.expect_serves();
}

INSTANTIATE_TEST_SUITE_P(Http, Hostile, ::testing::ValuesIn(hostile_cases()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(HostileRequests, NoByteOfTheClientComesBack) {
  TestServer server;
  Client client(server.port());
  const std::string canary = "canary-4711";
  ASSERT_TRUE(client.send("GET /" + canary + "?" + canary + " HTTP/1.1\r\nHost: " + canary +
                          "\r\nX-Request-Id: " + canary +
                          "%0D%0ASet-Cookie:1\r\nX-Forwarded-For: ,\r\n" + canary + ": " + canary +
                          "\r\n\r\n"));
  const Response response = client.read_response();
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ((response.head + response.body).find("canary"), std::string::npos);
  EXPECT_EQ(response.field("Set-Cookie"), "");
}

TEST(HostileRequests, OnlyAValidRequestIdComesBack) {
  TestServer server;
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/hello", "X-Request-Id: my-id_1.2\r\n")));
  EXPECT_EQ(client.read_response().field("X-Request-Id"), "my-id_1.2");
  ASSERT_TRUE(client.send(get("/hello", "X-Request-Id: " + std::string(129, 'i') + "\r\n")));
  const std::string ours = client.read_response().field("X-Request-Id");
  EXPECT_TRUE(ours.starts_with("req-")) << ours;
  ASSERT_TRUE(client.send(get("/hello")));
  EXPECT_NE(client.read_response().field("X-Request-Id"), ours);
}

TEST(HostileRequests, PipelinedOnesAreAnsweredInOrderOneAtATime) {
  TestServer server;
  Client client(server.port());
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += post("/echo", std::to_string(i));
  std::thread sender([&] { client.send(bytes); });
  for (int i = 0; i < 1000; ++i) {
    const Response response = client.read_response();
    ASSERT_EQ(response.status, 200);
    ASSERT_EQ(response.body, std::to_string(i));
  }
  sender.join();
}

TEST(HostileRequests, OneIsInFlightAtMostAndTheRestIsBounded) {
  HttpServerOptions options;
  options.limits.pipelined_bytes = 1000;
  TestServer server(std::move(options));
  Client client(server.port());
  constexpr int kCount = 100;
  ASSERT_TRUE(client.send(filled(kCount, get("/hold"))));
  for (int i = 0; i < kCount; ++i) {
    ASSERT_TRUE(server.wait_held(1)) << i;
    EXPECT_EQ(server.counters().requests_in_flight, 1u);
    server.run([&] {
      server.held()[0]->reply(200, "text/plain", "ok");
      server.held().clear();  // the next one comes in a later turn
    });
    ASSERT_EQ(client.read_response().status, 200);
  }
}

TEST(HostileRequests, ContinueIsSentBeforeTheBodyAndOnlyIfItIsWanted) {
  TestServer server;
  Client client(server.port());
  const std::string head = "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n";
  ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nHost: a\r\n" + head));
  EXPECT_EQ(client.read_response().status, 100);
  ASSERT_TRUE(client.send("hello"));
  EXPECT_EQ(client.read_response().body, "hello");
  // No body, nothing to wait for.
  ASSERT_TRUE(client.send(get("/hello", "Expect: 100-continue\r\n")));
  EXPECT_EQ(client.read_response().status, 200);
  // A refused request is refused before its body comes.
  ASSERT_TRUE(client.send("POST /nothing HTTP/1.1\r\nHost: a\r\n" + head));
  EXPECT_EQ(client.read_response().status, 404);
}

// A body behind an answer to HEAD would be read as the next answer.
TEST(HostileRequests, HeadIsRefusedWithoutABody) {
  TestServer server;
  Client client(server.port());
  ASSERT_TRUE(client.send("HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n" + get("/hello")));
  ASSERT_TRUE(server.eventually([&] { return server.server().counters().responses[2] == 1; }));
  std::string answers;
  while (answers.find("{\"hello\":1}") == std::string::npos && client.receive()) {
    answers += std::exchange(client.received(), {});
  }
  EXPECT_TRUE(answers.starts_with("HTTP/1.1 405 "));
  const size_t end = answers.find("\r\n\r\n");
  ASSERT_NE(end, std::string::npos);
  EXPECT_TRUE(answers.substr(end + 4).starts_with("HTTP/1.1 200 ")) << answers;
}

TEST(HostileRequests, SmallChunksAndTheLargestBodyAreServed) {
  HttpServerOptions options;
  options.limits.body_bytes = 1 << 20;
  TestServer server(std::move(options));
  Client client(server.port());
  std::string chunks = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20'000; ++i) chunks += "6\r\nabcdef\r\n";
  ASSERT_TRUE(client.send(chunks + "0\r\n\r\n"));
  EXPECT_EQ(client.read_response().body.size(), 120'000u);
  const std::string largest(1 << 20, 'x');
  ASSERT_TRUE(client.send(post("/echo", largest)));
  EXPECT_EQ(client.read_response().body, largest);
  client.send(post("/echo", largest + "x"));
  EXPECT_EQ(client.read_response().status, 413);
  server.expect_serves();
}

TEST(HostileRequests, ADroppedExchangeIsA500) {
  TestServer server;
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/drop") + get("/hello")));
  const Response response = client.read_response();
  EXPECT_EQ(response.status, 500);
  EXPECT_NE(response.body.find("no_answer"), std::string::npos);
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(HostileRequests, ADroppedStreamIsCutNotEnded) {
  TestServer server;
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(1));
  server.run([&] {
    server.held()[0]->begin_stream("text/event-stream");
    server.held()[0]->send("data: 1\n\n");
  });
  ASSERT_TRUE(client.receive());
  // The last reference goes on a thread that is not the I/O thread.
  std::shared_ptr<Exchange> last;
  server.run([&] {
    last = std::move(server.held()[0]);
    server.held().clear();
  });
  last.reset();
  EXPECT_TRUE(client.read_response().closed);
  EXPECT_TRUE(server.eventually([&] { return server.server().counters().connections_open == 0; }));
}

TEST(HostileRequests, AHandlersFieldCannotEndItself) {
  TestServer server;
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(1));
  server.run([&] {
    server.held()[0]->reply(200, "text/plain", "ok",
                            {{"X-Good", "yes"}, {"X-Bad", "a\r\nX-Evil: b"}, {"X Bad", "c"}});
  });
  const Response response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.field("X-Good"), "yes");
  EXPECT_EQ(response.field("X-Bad"), "");
  EXPECT_EQ(response.field("X-Evil"), "");
}

}  // namespace
}  // namespace tandem::serve::testing
