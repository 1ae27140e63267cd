// SPDX-License-Identifier: Apache-2.0
// Clients that go, stall or read slowly; deadlines; caps; running out of descriptors.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <tuple>

#include "serve/http_client_test.h"

namespace tandem::serve::testing {
namespace {

using std::chrono::milliseconds;

HttpServerOptions with_limits(const std::function<void(HttpLimits&)>& change) {
  HttpServerOptions options;
  options.limits.tick = milliseconds(5);
  change(options.limits);
  return options;
}

enum class Leave { kClose, kHalfClose, kReset };
enum class When { kBeforeAnswer, kInStream };

class ClientGone : public ::testing::TestWithParam<std::tuple<Leave, When>> {};

TEST_P(ClientGone, IsNoticedAtOnce) {
  const auto [leave, when] = GetParam();
  TestServer server;
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(1));
  if (when == When::kInStream) {
    server.run([&] {
      server.held()[0]->begin_stream("text/event-stream");
      server.held()[0]->send("data: 1\n\n");
    });
    ASSERT_TRUE(client.receive());
  }
  if (leave == Leave::kClose) client.close();
  if (leave == Leave::kHalfClose) client.half_close();
  if (leave == Leave::kReset) client.reset();
  ASSERT_TRUE(server.eventually([&] { return server.gone_count() == 1; }));
  server.run([&] {
    EXPECT_TRUE(server.held()[0]->gone());
    // What a handler does before it has heard of it is ignored.
    if (when == When::kInStream) {
      server.held()[0]->send("data: 2\n\n");
      server.held()[0]->end();
    } else {
      server.held()[0]->reply(200, "text/plain", "late");
    }
  });
  const HttpCounters counters = server.counters();
  EXPECT_EQ(counters.clients_gone, 1u);
  EXPECT_EQ(counters.clients_slow, 0u);
  EXPECT_EQ(counters.connections_open, 0u);
  EXPECT_EQ(counters.requests_in_flight, 0u);
  server.expect_serves();
}

INSTANTIATE_TEST_SUITE_P(
    Http, ClientGone,
    ::testing::Combine(::testing::Values(Leave::kClose, Leave::kHalfClose, Leave::kReset),
                       ::testing::Values(When::kBeforeAnswer, When::kInStream)));

TEST(ClientGone, IsNoticedBehindPipelinedBytesToo) {
  TestServer server(with_limits([](HttpLimits& limits) { limits.pipelined_bytes = 100; }));
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/hold") + std::string(50'000, 'x')));
  ASSERT_TRUE(server.wait_held(1));
  client.close();
  EXPECT_TRUE(server.eventually([&] { return server.gone_count() == 1; }));
}

TEST(ClientGone, AfterTheLastTokenIsNotGone) {
  TestServer server;
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/events")));
  EXPECT_FALSE(client.read_response().closed);
  client.reset();
  ASSERT_TRUE(server.eventually([&] { return server.server().counters().connections_open == 0; }));
  EXPECT_EQ(server.counters().clients_gone, 0u);
}

// A stream that nobody reads: memory stays bounded and the write deadline ends it.
TEST(SlowReader, IsGoneAfterTheWriteDeadline) {
  TestServer server(with_limits([](HttpLimits& limits) {
    limits.write_deadline = milliseconds(200);
    limits.send_buffer_bytes = 8 * 1024;
  }));
  Client client(server.port(), 4096);
  ASSERT_TRUE(client.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(1));
  server.run([&] { server.held()[0]->begin_stream("text/event-stream"); });
  size_t unsent_max = 0;
  // A handler with back-pressure: it sends only while little is unsent.
  EXPECT_TRUE(server.eventually([&] {
    Exchange& exchange = *server.held()[0];
    while (!exchange.gone() && exchange.unsent_bytes() < 64 * 1024) {
      exchange.send(std::string(1024, 'x'));
    }
    unsent_max = std::max(unsent_max, exchange.unsent_bytes());
    return exchange.gone();
  }));
  EXPECT_LE(unsent_max, 65u * 1024);
  EXPECT_EQ(server.counters().clients_slow, 1u);
  EXPECT_EQ(server.gone_count(), 1);
  server.expect_serves();
}

TEST(SlowReader, OneByteAtATimeDoesNotResetTheDeadline) {
  TestServer server(with_limits([](HttpLimits& limits) {
    limits.write_deadline = milliseconds(300);
    limits.send_buffer_bytes = 8 * 1024;
  }));
  Client client(server.port(), 4096);
  ASSERT_TRUE(client.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(1));
  server.run([&] {
    server.held()[0]->begin_stream("text/event-stream");
    server.held()[0]->send(std::string(512 * 1024, 'x'));
  });
  EXPECT_TRUE(server.eventually([&] {
    client.receive(0, 1);
    return server.gone_count() == 1;
  }));
  EXPECT_EQ(server.counters().clients_slow, 1u);
}

// Without back-pressure in the handler the cap holds.
TEST(SlowReader, IsGoneOverTheUnsentCap) {
  TestServer server(with_limits([](HttpLimits& limits) {
    limits.unsent_bytes = 256 * 1024;
    limits.send_buffer_bytes = 8 * 1024;
  }));
  Client client(server.port(), 4096);
  ASSERT_TRUE(client.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(1));
  server.run([&] {
    server.held()[0]->begin_stream("text/event-stream");
    for (int i = 0; i < 10'000; ++i) server.held()[0]->send(std::string(1024, 'x'));
    server.held()[0]->end();
    EXPECT_LT(server.held()[0]->unsent_bytes(), 300u * 1024);
  });
  EXPECT_TRUE(client.read_response().closed);  // never an end mark on a stream with a hole
  EXPECT_EQ(server.counters().clients_slow, 1u);
  EXPECT_EQ(server.counters().requests_in_flight, 0u);
}

TEST(Deadlines, HeadNeverFinished) {
  TestServer server(with_limits([](HttpLimits& l) { l.head_deadline = milliseconds(50); }));
  Client client(server.port());
  ASSERT_TRUE(client.send("GET /hello HTTP/1.1\r\nHost: a\r\nX: "));
  for (int i = 0; i < 100 && !client.receive(1); ++i) client.send("y");  // slow, but never silent
  const Response response = client.read_response();
  EXPECT_EQ(response.status, 408);
  EXPECT_NE(response.body.find("head_timeout"), std::string::npos);
  server.expect_serves();
}

TEST(Deadlines, BodyNeverFinished) {
  TestServer server(with_limits([](HttpLimits& l) { l.body_deadline = milliseconds(50); }));
  Client client(server.port());
  ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"));
  const Response response = client.read_response();
  EXPECT_EQ(response.status, 408);
  EXPECT_NE(response.body.find("body_timeout"), std::string::npos);
  server.expect_serves();
}

TEST(Deadlines, IdleConnectionsAreClosedSilently) {
  TestServer server(with_limits([](HttpLimits& limits) {
    limits.idle_deadline = milliseconds(50);
    limits.head_deadline = milliseconds(50);
  }));
  Client fresh(server.port()), used(server.port());
  ASSERT_TRUE(used.send(get("/hello")));
  EXPECT_EQ(used.read_response().status, 200);
  EXPECT_TRUE(fresh.is_closed_by_server());
  EXPECT_TRUE(used.is_closed_by_server());
  EXPECT_TRUE(fresh.received().empty());
  EXPECT_TRUE(used.received().empty());
  fresh.close();
  used.close();
  EXPECT_TRUE(server.eventually([&] { return server.server().counters().connections_open == 0; }));
}

// The deadlines are not for handlers: an answer may take longer than a head.
TEST(Deadlines, AWorkingHandlerHasNone) {
  TestServer server(with_limits([](HttpLimits& limits) {
    limits.head_deadline = limits.body_deadline = limits.idle_deadline = milliseconds(20);
  }));
  Client client(server.port());
  ASSERT_TRUE(client.send(get("/hold")));
  ASSERT_TRUE(server.wait_held(1));
  EXPECT_FALSE(client.receive(200));
  server.run([&] { server.held()[0]->reply(200, "text/plain", "late"); });
  EXPECT_EQ(client.read_response().body, "late");
}

TEST(Caps, ConnectionsInAll) {
  TestServer server(with_limits([](HttpLimits& limits) { limits.connections = 3; }));
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    ASSERT_TRUE(clients.back()->send(get("/hello")));
    EXPECT_EQ(clients.back()->read_response().status, 200);
  }
  Client over(server.port());
  const Response response = over.read_response();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.field("Retry-After"), "1");
  EXPECT_TRUE(over.is_closed_by_server());
  ASSERT_TRUE(clients[1]->send(get("/hello")));  // the others are not disturbed
  EXPECT_EQ(clients[1]->read_response().status, 200);
  clients[0].reset();
  EXPECT_TRUE(server.eventually([&] { return server.server().counters().connections_open == 2; }));
  server.expect_serves();
}

TEST(Caps, ConnectionsOfOneClient) {
  TestServer server(with_limits([](HttpLimits& limits) { limits.connections_per_ip = 2; }));
  Client one(server.port()), two(server.port()), three(server.port());
  EXPECT_EQ(three.read_response().status, 429);
  ASSERT_TRUE(one.send(get("/hello")));
  EXPECT_EQ(one.read_response().status, 200);
}

TEST(Caps, BodiesInAll) {
  TestServer server(with_limits([](HttpLimits& limits) { limits.bodies_bytes = 100'000; }));
  Client holder(server.port());
  ASSERT_TRUE(holder.send(post("/hold", std::string(60'000, 'x'))));
  ASSERT_TRUE(server.wait_held(1));
  Client by_length(server.port()), by_chunks(server.port());
  ASSERT_TRUE(by_length.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n"));
  EXPECT_EQ(by_length.read_response().status, 503);
  std::string chunks = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 6; ++i) chunks += "2710\r\n" + std::string(10'000, 'x') + "\r\n";
  by_chunks.send(chunks);
  EXPECT_EQ(by_chunks.read_response().status, 503);
  server.run([&] { server.held()[0]->reply(200, "text/plain", "ok"); });
  EXPECT_EQ(holder.read_response().status, 200);
  Client again(server.port());  // all of it was given back
  ASSERT_TRUE(again.send(post("/echo", std::string(99'000, 'x'))));
  EXPECT_EQ(again.read_response().status, 200);
}

TEST(Caps, ManyIdleConnections) {
  TestServer server;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 400; ++i) clients.push_back(std::make_unique<Client>(server.port()));
  server.expect_serves();
  clients.clear();
  EXPECT_TRUE(server.eventually([&] { return server.server().counters().connections_open == 0; }));
}

// Sets how many descriptors this process may have, and sets it back.
class DescriptorLimit {
 public:
  DescriptorLimit() { getrlimit(RLIMIT_NOFILE, &before_); }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  void lower_to(rlim_t count) const {
    const rlimit limit{.rlim_cur = count, .rlim_max = before_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }

 private:
  rlimit before_{};
};

TEST(Caps, RunningOutOfDescriptors) {
  TestServer server(with_limits([](HttpLimits& limits) { limits.tick = milliseconds(50); }));
  Client before(server.port()), client(server.port()), waiting(server.port());
  ASSERT_TRUE(before.send(get("/hello")));
  EXPECT_EQ(before.read_response().status, 200);
  ASSERT_TRUE(server.eventually([&] { return server.server().counters().connections_open == 3; }));
  {
    // The sockets of the clients are made first: the server is to run out, not this test.
    const DescriptorLimit limit;
    const int spare = dup(0);
    ::close(spare);
    std::vector<int> sockets;
    for (int i = 0; i < 5; ++i) sockets.push_back(socket(AF_INET, SOCK_STREAM, 0));
    limit.lower_to(static_cast<rlim_t>(*std::max_element(sockets.begin(), sockets.end())) + 1);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(server.port())};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (const int fd : sockets) {
      ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    }
    ASSERT_TRUE(server.eventually([&] { return server.server().counters().accept_paused > 0; }));
    // Connections that exist are served meanwhile, and the listener rests instead of spinning.
    ASSERT_TRUE(before.send(get("/hello")));
    EXPECT_EQ(before.read_response().status, 200);
    const uint64_t paused = server.counters().accept_paused;
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_LE(server.counters().accept_paused - paused, 6u);
    for (const int fd : sockets) ::close(fd);
  }
  server.expect_serves();
}

}  // namespace
}  // namespace tandem::serve::testing
