// SPDX-License-Identifier: Apache-2.0
#include "serve/http_server.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "core/log.h"
#include "serve/connection.h"
#include "serve/listener.h"

namespace tandem::serve {
namespace {

std::string date_now() {
  using namespace std::chrono;
  return date_field(duration_cast<seconds>(system_clock::now().time_since_epoch()).count());
}

Result<std::string> random_id_prefix() {
  uint64_t bits = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&bits), sizeof(bits)) != 1) {
    return Error{ErrorCode::kInternal, "no random numbers for request ids", {}};
  }
  return fmt::format("req-{:016x}", bits);
}

bool is_loopback(const std::string& address) {
  boost::system::error_code error;
  const auto ip = boost::asio::ip::make_address(address, error);
  return error || ip.is_loopback();  // what is no address is refused by the listener
}

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(std::shared_ptr<ConnectionHub> hub, std::shared_ptr<Listener> listener)
      : hub_(std::move(hub)), listener_(std::move(listener)), timer_(hub_->io) {}

  void start() {
    listener_->start();
    wait_tick();
  }

  [[nodiscard]] uint16_t port() const { return listener_->port(); }
  [[nodiscard]] const HttpCounters& counters() const { return hub_->counters; }

  void drain(Duration deadline, std::function<void()> done) {
    CHECK(!hub_->draining, "a server drains once");
    drain_deadline_ = std::chrono::steady_clock::now() + deadline;
    listener_->accept_waiting();
    listener_->close();
    for_each_connection([](Connection& connection) { connection.begin_drain(); });
    hub_->draining = true;
    log::info("{}: draining, {} connections, {} requests in flight", hub_->name,
              hub_->connections.size(), hub_->counters.requests_in_flight);
    hub_->on_empty = [self = weak_from_this(), call = std::move(done)]() mutable {
      if (const auto impl = self.lock()) impl->hub_->on_empty = nullptr;
      if (const auto once = std::exchange(call, nullptr)) once();
    };
    if (hub_->connections.empty()) boost::asio::post(hub_->io, hub_->on_empty);
  }

  void close() {
    is_closed_ = true;
    hub_->draining = true;
    hub_->on_empty = nullptr;
    listener_->close();
    timer_.cancel();
    for_each_connection([](Connection& connection) { connection.drop(); });
  }

 private:
  // Closing a connection moves the last one into its place, so this walks from the end.
  template <typename Work>
  void for_each_connection(const Work& work) {
    for (size_t i = hub_->connections.size(); i-- > 0;) {
      if (i >= hub_->connections.size()) continue;
      const std::shared_ptr<Connection> connection = hub_->connections[i];
      work(*connection);
    }
  }

  void wait_tick() {
    timer_.expires_after(hub_->limits.tick);
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (error || self->is_closed_) return;
      self->tick();
      self->wait_tick();
    });
  }

  // One timer for all deadlines of all connections: a walk over 4,096 of them costs less than a
  // timer for each would.
  void tick() {
    const TimePoint now = std::chrono::steady_clock::now();
    hub_->date = date_now();
    listener_->tick();
    for_each_connection([now](Connection& connection) { connection.tick(now); });
    if (hub_->draining && drain_deadline_ <= now) {
      drain_deadline_ = TimePoint::max();
      for_each_connection([](Connection& connection) { connection.end_drain(); });
    }
  }

  const std::shared_ptr<ConnectionHub> hub_;
  const std::shared_ptr<Listener> listener_;
  boost::asio::steady_timer timer_;
  TimePoint drain_deadline_ = TimePoint::max();
  bool is_closed_ = false;
};

Result<std::unique_ptr<HttpServer>> HttpServer::open(boost::asio::io_context& io,
                                                     HttpServerOptions options) {
  if (options.keys.empty() && !options.allow_keyless_anywhere && !is_loopback(options.address)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("address {} can be reached from other machines: give API keys, or "
                             "allow requests without a key there",
                             options.address),
                 "address"};
  }
  auto hub = std::make_shared<ConnectionHub>(io);
  hub->name = std::move(options.name);
  hub->limits = options.limits;
  hub->keys = std::move(options.keys);
  hub->routes = TRY(RouteTable::open(std::move(options.routes), options.open_paths));
  hub->id_prefix = TRY(random_id_prefix());
  hub->date = date_now();
  auto listener = TRY(Listener::open(hub, options.address, options.port));
  log::info("{}: listening on {} port {}", hub->name, options.address, listener->port());
  auto impl = std::make_shared<Impl>(std::move(hub), std::move(listener));
  impl->start();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
  impl_->close();
}

uint16_t HttpServer::port() const {
  return impl_->port();
}

const HttpCounters& HttpServer::counters() const {
  return impl_->counters();
}

void HttpServer::drain(Duration deadline, std::function<void()> done) {
  impl_->drain(deadline, std::move(done));
}

}  // namespace tandem::serve
