// SPDX-License-Identifier: Apache-2.0
// What the tests of the HTTP side share: a server on its own thread with handlers that tests can
// hold and release, and a client that sends raw bytes. Every wait has a limit.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "serve/http_server.h"

namespace tandem::serve::testing {

constexpr int kWaitMs = 10'000;  // longer than anything here may take, sanitizers included

struct Response {
  int status = 0;
  std::string head, body;
  bool closed = false;  // the server ended the connection instead of, or within, an answer

  [[nodiscard]] std::string field(std::string_view name) const {
    const size_t at = head.find("\r\n" + std::string(name) + ": ");
    if (at == std::string::npos) return {};
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

// A client of raw bytes.
class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  [[nodiscard]] bool is_connected() const { return is_connected_; }

  // False once the server has closed or reset the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      pollfd ready{.fd = fd_, .events = POLLOUT};
      if (poll(&ready, 1, kWaitMs) <= 0) return false;
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

  // One response, with the body in full or up to where the server closed.
  Response read_response(int wait_ms = kWaitMs) {
    Response response;
    size_t end;
    while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
      if (!receive(wait_ms)) {
        response.closed = true;
        response.body = std::exchange(received_, {});
        return response;
      }
    }
    response.head = received_.substr(0, end + 4);
    received_.erase(0, end + 4);
    std::from_chars(response.head.data() + 9, response.head.data() + 12, response.status);
    if (response.status == 100) return response;
    if (response.field("Transfer-Encoding") == "chunked") {
      read_chunks(response, wait_ms);
    } else {
      size_t length = 0;
      const std::string text = response.field("Content-Length");
      std::from_chars(text.data(), text.data() + text.size(), length);
      while (received_.size() < length && receive(wait_ms)) {
      }
      response.closed = received_.size() < length;
      response.body = received_.substr(0, length);
      received_.erase(0, length);
    }
    return response;
  }

  // True when the server ends the connection within the time; what came before is dropped.
  bool is_closed_by_server(int wait_ms = kWaitMs) {
    while (receive(wait_ms)) {
    }
    return is_ended_;
  }

  // More bytes into received(); false at the end, or when nothing comes in time.
  bool receive(int wait_ms = kWaitMs, size_t bytes_max = 1 << 16) {
    pollfd ready{.fd = fd_, .events = POLLIN};
    if (poll(&ready, 1, wait_ms) <= 0) return false;
    std::string buffer(bytes_max, '\0');
    const ssize_t count = recv(fd_, buffer.data(), buffer.size(), 0);
    if (count <= 0) {
      is_ended_ = true;
      return false;
    }
    received_.append(buffer.data(), static_cast<size_t>(count));
    return true;
  }

  [[nodiscard]] std::string& received() { return received_; }
  void half_close() { shutdown(fd_, SHUT_WR); }
  void reset() {  // RST instead of FIN
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close();
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  void read_chunks(Response& response, int wait_ms) {
    for (;;) {
      size_t line;
      while ((line = received_.find("\r\n")) == std::string::npos) {
        if (!receive(wait_ms)) {
          response.closed = true;
          return;
        }
      }
      size_t size = 0;
      std::from_chars(received_.data(), received_.data() + line, size, 16);
      while (received_.size() < line + 2 + size + 2) {
        if (!receive(wait_ms)) {
          response.closed = true;
          return;
        }
      }
      response.body += received_.substr(line + 2, size);
      received_.erase(0, line + 2 + size + 2);
      if (size == 0) return;
    }
  }

  int fd_;
  bool is_connected_ = false, is_ended_ = false;
  std::string received_;
};

// A server that runs on a thread of its own. Routes:
//   GET /hello        {"hello":1}
//   POST /echo        the body again
//   GET|POST /hold    held until release() or finish_held()
//   GET /drop         the handler forgets the exchange
//   GET /events       three events and the end
class TestServer {
 public:
  explicit TestServer(HttpServerOptions options = {}) {
    add_routes(options.routes);
    auto server = HttpServer::open(io_, std::move(options));
    EXPECT_TRUE(server.ok()) << (server.ok() ? "" : server.error().text);
    server_ = std::move(server).value();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~TestServer() {
    run([this] {
      held_.clear();
      server_.reset();
    });
    work_.reset();
    io_.stop();
    thread_.join();
  }

  [[nodiscard]] uint16_t port() const { return server_->port(); }
  [[nodiscard]] HttpServer& server() { return *server_; }

  // Runs work on the I/O thread and waits for it.
  void run(const std::function<void()>& work) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      work();
      done.set_value();
    });
    ASSERT_EQ(done.get_future().wait_for(std::chrono::milliseconds(kWaitMs)),
              std::future_status::ready);
  }
  HttpCounters counters() {
    HttpCounters copy;
    run([&] { copy = server_->counters(); });
    return copy;
  }
  // Waits until the condition holds on the I/O thread.
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < kWaitMs / 2; ++i) {
      bool holds = false;
      run([&] { holds = condition(); });
      if (holds) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  bool wait_held(size_t count) {
    return eventually([&] { return held_.size() == count; });
  }
  // On the I/O thread.
  std::vector<std::shared_ptr<Exchange>>& held() { return held_; }
  [[nodiscard]] int gone_count() const { return gone_count_; }

  // A simple request on a connection of its own is served.
  void expect_serves() {
    Client client(port());
    ASSERT_TRUE(client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"));
    const Response response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, R"({"hello":1})");
  }

 private:
  void add_routes(std::vector<Route>& routes) {
    const Handler hold = [this](std::shared_ptr<Exchange> exchange) {
      exchange->on_gone([this] { ++gone_count_; });
      held_.push_back(std::move(exchange));
    };
    routes.push_back({"GET", "/hello", [](const std::shared_ptr<Exchange>& exchange) {
                        exchange->reply(200, "application/json", R"({"hello":1})");
                      }});
    routes.push_back({"POST", "/echo", [](const std::shared_ptr<Exchange>& exchange) {
                        exchange->reply(200, "text/plain", exchange->request().body);
                      }});
    routes.push_back({"GET", "/hold", hold});
    routes.push_back({"POST", "/hold", hold});
    routes.push_back({"GET", "/drop", [](const std::shared_ptr<Exchange>&) {}});
    routes.push_back({"GET", "/events", [](const std::shared_ptr<Exchange>& exchange) {
                        exchange->begin_stream("text/event-stream");
                        for (int i = 0; i < 3; ++i) {
                          exchange->send("data: " + std::to_string(i) + "\n\n");
                        }
                        exchange->end();
                      }});
  }

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::unique_ptr<HttpServer> server_;
  std::vector<std::shared_ptr<Exchange>> held_;
  int gone_count_ = 0;
  std::thread thread_;
};

// The smallest request that is served.
inline std::string get(std::string_view path, std::string_view fields = {}) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) +
         "\r\n";
}
inline std::string post(std::string_view path, std::string_view body,
                        std::string_view fields = {}) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         std::string(fields) + "\r\n" + std::string(body);
}

}  // namespace tandem::serve::testing
