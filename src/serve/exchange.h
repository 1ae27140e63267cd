// SPDX-License-Identifier: Apache-2.0
// One HTTP request and the way to answer it: the seam between the HTTP side (connection.cpp: bytes,
// limits, keys) and the handlers (OpenAI schema, admin). Handlers never see a socket, the HTTP side
// never sees JSON.
//
// Threads: every function of Exchange is called on the I/O thread, and every callback comes on it.
// A handler that must work long (parse, render, tokenise) posts that to the worker pool and posts
// the answer back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"

namespace tandem::serve {

struct HttpRequest {
  std::string method;        // "GET", "POST"
  std::string path;          // normalised; the same object was routed and authorised
  std::string content_type;  // media type alone, lower case; may be empty
  std::string body;
  std::string
      request_id;  // the client's X-Request-Id if valid (<= 128 of [A-Za-z0-9._-]), else ours
  std::string traceparent;  // passed through, or empty
  uint64_t tenant = 0;      // from the API key; 0 without keys
  TimePoint received{};     // head complete
};

// What the HTTP side implements for one request in flight. All members set; called on the I/O
// thread.
struct ExchangeSink {
  std::function<void(int status, std::string content_type, std::string body,
                     std::vector<std::pair<std::string, std::string>> headers)>
      reply;
  std::function<void(std::string content_type)> begin_stream;
  std::function<void(std::string bytes)> send;
  std::function<void()> end;
  std::function<size_t()> unsent_bytes;
  std::function<void()> abort;  // cuts a stream without its end mark; may be empty (then: end)
};

// Exactly one of: reply(); or begin_stream(), send()*, end(). Dropping the last reference without
// either answers 500 (or cuts the stream); it may be dropped on any thread: exchanges made by the
// HTTP side are destroyed on the I/O thread. After the client is gone all calls are no-ops.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(HttpRequest request, ExchangeSink sink)
      : request_(std::move(request)), sink_(std::move(sink)) {}
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] const HttpRequest& request() const { return request_; }
  [[nodiscard]] HttpRequest& request() { return request_; }

  void reply(int status, std::string content_type, std::string body,
             std::vector<std::pair<std::string, std::string>> headers = {});
  void begin_stream(std::string content_type);  // 200, chunked
  void send(std::string bytes);  // queued; several sends of one loop turn leave in one write
  void end();
  [[nodiscard]] size_t unsent_bytes()
      const;  // queued and not yet taken by the kernel: for back-pressure
  [[nodiscard]] bool gone() const { return gone_; }

  // Called once, when the client has gone before the end (closed, reset, too slow): cancel the
  // work.
  void on_gone(std::function<void()> callback);

  // --- HTTP side
  void client_gone();

 private:
  HttpRequest request_;
  ExchangeSink sink_;
  std::function<void()> on_gone_;
  bool answered_ = false, streaming_ = false, ended_ = false, gone_ = false;
};

using Handler = std::function<void(std::shared_ptr<Exchange>)>;

// Method and path -> handler. The HTTP side answers 404 and 405 itself.
struct Route {
  std::string method;
  std::string path;
  Handler handler;
};

// How handlers get off the I/O thread and back. app/ gives real pools, tests may run everything in
// line.
struct Executors {
  // Runs work on a worker thread; false: its queue is full now.
  std::function<bool(std::function<void()>)> try_post_work;
  // Runs on the I/O thread, soon.
  std::function<void(std::function<void()>)> post_io;
};

}  // namespace tandem::serve
