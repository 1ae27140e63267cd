// SPDX-License-Identifier: Apache-2.0
// One HTTP/1.1 listener with its routes, keys and limits. app/ makes two (public and admin) on one
// io_context and runs that on one thread, the I/O thread; tests do the same. Nothing here makes a
// thread. docs/http.md says what is accepted, what is refused, and why.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "serve/api_keys.h"
#include "serve/exchange.h"
#include "serve/http_limits.h"

namespace boost::asio {
class io_context;
}

namespace tandem::serve {

struct HttpServerOptions {
  std::string name = "http";          // for log lines: "public", "admin"
  std::string address = "127.0.0.1";  // a numeric IPv4 or IPv6 address
  uint16_t port = 0;                  // 0: any free one, see HttpServer::port()
  HttpLimits limits{};
  std::vector<Route> routes;            // paths as clients send them: no '%', no "//", no ".."
  ApiKeys keys{};                       // empty: no key is asked
  std::vector<std::string> open_paths;  // answered without a key; all others need one
  bool allow_keyless_anywhere = false;  // else an address beyond loopback needs keys
};

class HttpServer {
 public:
  // Listens at once; connections are served while io runs. `io` outlives the server and every
  // Exchange. Errors: kInvalidArgument (address, routes, or no keys beyond loopback), kUnavailable
  // (port in use or not permitted), each with one sentence for the user.
  static Result<std::unique_ptr<HttpServer>> open(boost::asio::io_context& io,
                                                  HttpServerOptions options);
  // On the I/O thread, or after io has stopped. Cuts what is still open.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] uint16_t port() const;

  // --- On the I/O thread.
  [[nodiscard]] const HttpCounters& counters() const;

  // Stops listening, closes idle connections and lets requests in flight end. What is left at the
  // deadline gets a retryable error (503; inside an event stream, as its last event) and its
  // handler hears client_gone. `done` is called once, when the last connection has closed.
  void drain(Duration deadline, std::function<void()> done);

 private:
  class Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace tandem::serve
