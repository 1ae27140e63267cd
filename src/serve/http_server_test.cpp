// SPDX-License-Identifier: Apache-2.0
// The plain life of requests and connections.
#include "serve/http_server.h"

#include "serve/http_client_test.h"

namespace tandem::serve::testing {
namespace {

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  TestServer server;
  Client client(server.port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(get("/hello")));
    const Response response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, R"({"hello":1})");
    EXPECT_EQ(response.field("Content-Type"), "application/json");
    EXPECT_TRUE(response.field("X-Request-Id").starts_with("req-"));
    EXPECT_TRUE(response.field("Date").ends_with(" GMT"));
  }
  const HttpCounters counters = server.counters();
  EXPECT_EQ(counters.requests, 3u);
  EXPECT_EQ(counters.responses[2], 3u);
  EXPECT_EQ(counters.connections_open, 1u);
  EXPECT_EQ(counters.requests_in_flight, 0u);
}

TEST(HttpServer, StreamsEvents) {
  TestServer server;
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/events") + get("/hello")));
  const Response response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.field("Content-Type"), "text/event-stream");
  EXPECT_EQ(response.body, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  EXPECT_FALSE(response.closed);
  EXPECT_EQ(client.read_response().status, 200);  // the next one, on the same connection
}

}  // namespace
}  // namespace tandem::serve::testing
