// SPDX-License-Identifier: Apache-2.0
// Keys on a running server: every path needs one, unless the listener opens it by name.
#include <gtest/gtest.h>

#include "serve/http_client_test.h"

namespace tandem::serve::testing {
namespace {

HttpServerOptions with_keys() {
  const std::vector<std::string> entries = {"sk-right", "sk-other"};
  HttpServerOptions options;
  options.keys = std::move(ApiKeys::open(entries)).value();
  options.routes.push_back({"GET", "/live", [](const std::shared_ptr<Exchange>& exchange) {
                              exchange->reply(200, "text/plain", "ok");
                            }});
  options.open_paths = {"/live"};
  return options;
}

TEST(HttpKeys, EveryPathNeedsOne) {
  TestServer server(with_keys());
  for (const std::string& request :
       {get("/hello"), get("/events"), get("/hold"), get("/drop"), post("/echo", "x"),
        get("/metrics"), get("/live/"), get("/LIVE"), get("/hello?api_key=sk-right"),
        std::string("GET /hello?Authorization=Bearer%20sk-right HTTP/1.1\r\nHost: a\r\n\r\n")}) {
    SCOPED_TRACE(request);
    Client client(server.port());
    ASSERT_TRUE(client.send(request));
    const Response response = client.read_response();
    EXPECT_EQ(response.status, 401);
    EXPECT_NE(response.body.find(R"("code":"invalid_api_key")"), std::string::npos);
    EXPECT_EQ(response.field("WWW-Authenticate"), "Bearer");
  }
  EXPECT_EQ(server.counters().requests_in_flight, 0u);
}

TEST(HttpKeys, WrongOnesAreAllAnsweredAlike) {
  TestServer server(with_keys());
  for (const std::string& value :
       {std::string("Bearer sk-righu"), std::string("Bearer sk-righ"),
        std::string("Bearer sk-rightt"), std::string("Basic c2stcmlnaHQ="), std::string("sk-right"),
        std::string("Bearer s\xc3\xb6"), "Bearer " + std::string(8'000, 'k')}) {
    Client client(server.port());
    ASSERT_TRUE(client.send(get("/hello", "Authorization: " + value + "\r\n")));
    const Response response = client.read_response();
    EXPECT_EQ(response.status, 401) << value.substr(0, 40);
    EXPECT_NE(response.body.find("Incorrect or missing API key."), std::string::npos);
  }
  Client twice(server.port());
  ASSERT_TRUE(twice.send(
      get("/hello", "Authorization: Bearer sk-right\r\nAuthorization: Bearer sk-right\r\n")));
  EXPECT_EQ(twice.read_response().status, 401);
  // A key that does not fit in a head at all.
  Client large(server.port());
  large.send(get("/hello", "Authorization: Bearer " + std::string(64 * 1024, 'k') + "\r\n"));
  EXPECT_EQ(large.read_response().status, 431);
}

TEST(HttpKeys, TheRightOneGivesATenant) {
  TestServer server(with_keys());
  Client client(server.port());
  for (const char* key : {"sk-right", "sk-other", "sk-right"}) {
    ASSERT_TRUE(client.send(get("/hold", "Authorization: Bearer " + std::string(key) + "\r\n")));
    ASSERT_TRUE(server.eventually([&] {
      return !server.held().empty() && !server.held().back()->request().path.empty() &&
             server.server().counters().requests_in_flight == 1;
    }));
    server.run([&] { server.held().back()->reply(200, "text/plain", "ok"); });
    EXPECT_EQ(client.read_response().status, 200);
  }
  server.run([&] {
    ASSERT_EQ(server.held().size(), 3u);
    EXPECT_EQ(server.held()[0]->request().tenant, server.held()[2]->request().tenant);
    EXPECT_NE(server.held()[0]->request().tenant, server.held()[1]->request().tenant);
    EXPECT_NE(server.held()[0]->request().tenant, 0u);
  });
}

TEST(HttpKeys, OpenPathsNeedNone) {
  TestServer server(with_keys());
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/live")));
  EXPECT_EQ(client.read_response().status, 200);
}

// Before the body: nobody without a key makes the server read 32 MiB.
TEST(HttpKeys, AreAskedForBeforeTheBody) {
  TestServer server(with_keys());
  Client client(server.port());
  ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n"));
  EXPECT_EQ(client.read_response().status, 401);
}

}  // namespace
}  // namespace tandem::serve::testing
