// SPDX-License-Identifier: Apache-2.0
// Opening and draining a listener.
#include <gtest/gtest.h>

#include "serve/http_client_test.h"

namespace tandem::serve::testing {
namespace {

using std::chrono::milliseconds;

HttpServerOptions quick() {
  HttpServerOptions options;
  options.limits.tick = milliseconds(5);
  return options;
}

class Drain {
 public:
  Drain(TestServer& server, Duration deadline) {
    server.run([&] { server.server().drain(deadline, [this] { done_.set_value(); }); });
  }
  bool is_done(int wait_ms = kWaitMs) {
    return future_.wait_for(milliseconds(wait_ms)) == std::future_status::ready;
  }

 private:
  std::promise<void> done_;
  std::future<void> future_ = done_.get_future();
};

TEST(HttpDrain, WithNobodyThereIsDoneAtOnce) {
  TestServer server(quick());
  Drain drain(server, std::chrono::seconds(10));
  EXPECT_TRUE(drain.is_done());
  EXPECT_FALSE(Client(server.port()).is_connected());
}

TEST(HttpDrain, RequestsInFlightEndAndIdleConnectionsClose) {
  TestServer server(quick());
  Client idle(server.port()), whole(server.port()), stream(server.port());
  ASSERT_TRUE(idle.send(get("/hello")));
  EXPECT_EQ(idle.read_response().status, 200);
  ASSERT_TRUE(whole.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(1));
  ASSERT_TRUE(stream.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(2));
  server.run([&] { server.held()[1]->begin_stream("text/event-stream"); });
  Drain drain(server, std::chrono::seconds(10));
  EXPECT_TRUE(idle.is_closed_by_server());
  EXPECT_FALSE(drain.is_done(20));
  server.run([&] {
    server.held()[0]->reply(200, "text/plain", "whole");
    server.held()[1]->send("data: 1\n\n");
    server.held()[1]->end();
  });
  const Response response = whole.read_response();
  EXPECT_EQ(response.body, "whole");
  EXPECT_EQ(response.field("Connection"), "close");
  EXPECT_EQ(stream.read_response().body, "data: 1\n\n");
  idle.close();
  whole.close();
  stream.close();
  EXPECT_TRUE(drain.is_done());
  EXPECT_EQ(server.counters().clients_gone, 0u);
}

TEST(HttpDrain, AtTheDeadlineTheRestGetsARetryableError) {
  TestServer server(quick());
  Client whole(server.port()), stream(server.port()), partial(server.port());
  ASSERT_TRUE(whole.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(1));
  ASSERT_TRUE(stream.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(2));
  ASSERT_TRUE(partial.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab"));
  server.run([&] {
    server.held()[1]->begin_stream("text/event-stream");
    server.held()[1]->send("data: 1\n\n");
  });
  Drain drain(server, milliseconds(100));
  for (Client* client : {&whole, &partial}) {
    const Response response = client->read_response();
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(response.field("Retry-After"), "1");
    EXPECT_NE(response.body.find("shutting_down"), std::string::npos);
  }
  const Response cut = stream.read_response();
  EXPECT_TRUE(cut.body.starts_with("data: 1\n\ndata: {\"error\":")) << cut.body;
  EXPECT_NE(cut.body.find("shutting_down"), std::string::npos);
  EXPECT_EQ(cut.body.find("[DONE]"), std::string::npos);
  whole.close();
  stream.close();
  partial.close();
  EXPECT_TRUE(drain.is_done());
  EXPECT_EQ(server.gone_count(), 2);  // their work was stopped
  EXPECT_EQ(server.counters().requests_in_flight, 0u);
}

// What was sent just before the drain is not lost, also on a connection not accepted yet.
TEST(HttpDrain, RequestsThatHaveArrivedAreServed) {
  TestServer server(quick());
  Client known(server.port());
  ASSERT_TRUE(known.send(get("/hello")));
  EXPECT_EQ(known.read_response().status, 200);
  std::unique_ptr<Client> fresh;
  std::promise<void> done;
  server.run([&] {  // the I/O thread is here, so neither is read before the drain begins
    fresh = std::make_unique<Client>(server.port());
    fresh->send(get("/hello"));
    known.send(get("/hello"));
    server.server().drain(std::chrono::seconds(10), [&] { done.set_value(); });
  });
  EXPECT_EQ(fresh->read_response().status, 200);
  EXPECT_EQ(known.read_response().status, 200);
  fresh.reset();
  known.close();
  EXPECT_EQ(done.get_future().wait_for(milliseconds(kWaitMs)), std::future_status::ready);
}

TEST(HttpDrain, ARequestThatComesLaterIsRefused) {
  TestServer server(quick());
  Client client(server.port());
  ASSERT_TRUE(client.send("GET /hello HTTP/1.1\r\nHo"));
  ASSERT_TRUE(server.eventually([&] { return server.server().counters().bytes_in > 0; }));
  Drain drain(server, std::chrono::seconds(10));
  ASSERT_TRUE(client.send("st: a\r\n\r\n"));
  EXPECT_EQ(client.read_response().status, 503);
  client.close();
  EXPECT_TRUE(drain.is_done());
}

TEST(HttpOpen, RefusesWhatCannotWork) {
  boost::asio::io_context io;
  auto first = HttpServer::open(io, {});
  ASSERT_TRUE(first.ok());
  const auto refused = [&](HttpServerOptions options) {
    const auto server = HttpServer::open(io, std::move(options));
    EXPECT_FALSE(server.ok());
    return server.ok() ? Error{} : server.error();
  };
  const Error in_use = refused({.port = (*first)->port()});
  EXPECT_EQ(in_use.code, ErrorCode::kUnavailable);
  EXPECT_NE(in_use.text.find("already in use"), std::string::npos) << in_use.text;
  EXPECT_EQ(refused({.address = "localhost"}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused({.address = "0.0.0.0"}).param, "address");  // without keys
  EXPECT_EQ(refused({.address = "192.0.2.1", .allow_keyless_anywhere = true}).code,
            ErrorCode::kUnavailable);
  const Handler none = [](const std::shared_ptr<Exchange>&) {};
  EXPECT_EQ(refused({.routes = {{"GET", "/a/../b", none}}}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused({.routes = {{"GET", "/a", none}, {"GET", "/a", none}}}).code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused({.open_paths = {"/live"}}).code, ErrorCode::kInvalidArgument);
}

TEST(HttpOpen, IPv6Loopback) {
  boost::asio::io_context io;
  const auto server = HttpServer::open(io, {.address = "::1"});
  if (!server.ok()) GTEST_SKIP() << "no IPv6 on this machine: " << server.error().text;
}

}  // namespace
}  // namespace tandem::serve::testing
