// SPDX-License-Identifier: Apache-2.0
#include "serve/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <cstring>

#include "core/log.h"

namespace tandem::serve {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// What "one client" is for the cap: an IPv4 address, or the /64 network of an IPv6 address.
uint64_t client_of(const boost::asio::ip::address& address) {
  if (address.is_v4()) return address.to_v4().to_uint();
  const boost::asio::ip::address_v6 v6 = address.to_v6();
  const auto bytes = v6.to_bytes();
  uint64_t network = 0;
  std::memcpy(&network, bytes.data(), sizeof(network));
  if (v6.is_v4_mapped()) std::memcpy(&network, bytes.data() + 12, 4);
  return network;
}

int open_reserve() {
  return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

Error listen_error(const std::string& address, uint16_t port, const error_code& error) {
  const char* why = "is not available on this machine";
  if (error == boost::asio::error::address_in_use) why = "is already in use";
  if (error == boost::asio::error::access_denied) why = "needs more rights than this process has";
  return {
      ErrorCode::kUnavailable, fmt::format("cannot listen: {} port {} {}", address, port, why), {}};
}

}  // namespace

Result<std::shared_ptr<Listener>> Listener::open(std::shared_ptr<ConnectionHub> hub,
                                                 const std::string& address, uint16_t port) {
  error_code error;
  const auto ip = boost::asio::ip::make_address(address, error);
  if (error) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is not a numeric IPv4 or IPv6 address", address),
                 {}};
  }
  const tcp::endpoint endpoint(ip, port);
  tcp::acceptor acceptor(hub->io);
  acceptor.open(endpoint.protocol(), error);
  // So that a restart does not wait for the last process's closed connections.
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(hub->limits.backlog, error);
  if (!error) acceptor.non_blocking(true, error);
  if (error) return listen_error(address, port, error);
  return std::make_shared<Listener>(std::move(hub), std::move(acceptor));
}

Listener::Listener(std::shared_ptr<ConnectionHub> hub, tcp::acceptor acceptor)
    : hub_(std::move(hub)), acceptor_(std::move(acceptor)), reserve_fd_(open_reserve()) {
  error_code ignored;
  port_ = acceptor_.local_endpoint(ignored).port();
}

Listener::~Listener() {
  if (reserve_fd_ >= 0) ::close(reserve_fd_);
}

void Listener::start() {
  accept_next();
}

void Listener::tick() {
  if (!is_resting_ || !acceptor_.is_open()) return;
  if (reserve_fd_ < 0) reserve_fd_ = open_reserve();
  is_resting_ = false;
  accept_next();
}

void Listener::accept_waiting() {
  for (int i = 0; i < hub_->limits.backlog; ++i) {
    error_code error;
    tcp::socket socket = acceptor_.accept(error);
    if (error) return;
    on_accepted(std::move(socket));
  }
}

void Listener::close() {
  error_code ignored;
  acceptor_.close(ignored);
}

void Listener::accept_next() {
  acceptor_.async_accept([self = shared_from_this()](error_code error, tcp::socket socket) {
    if (!self->acceptor_.is_open()) return;
    if (error) return self->on_accept_failed(error);
    self->on_accepted(std::move(socket));
    self->accept_next();
  });
}

void Listener::on_accepted(tcp::socket socket) {
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return;  // reset while it waited
  const uint64_t client = client_of(peer.address());
  if (hub_->connections.size() >= hub_->limits.connections) {
    return turn_away(std::move(socket), Refusal::kTooManyConnections);
  }
  size_t& of_client = hub_->connections_of[client];
  if (of_client >= hub_->limits.connections_per_ip) {
    return turn_away(std::move(socket), Refusal::kTooManyConnectionsOfClient);
  }
  ++of_client;
  ++hub_->counters.connections_accepted;
  std::make_shared<Connection>(hub_, std::move(socket), client)->start();
}

// One try to say why, without waiting for the client.
void Listener::turn_away(tcp::socket socket, Refusal refusal) {
  ++hub_->counters.refused[static_cast<size_t>(refusal)];
  const RefusalInfo& info = refusal_info(refusal);
  const std::string body = error_body(info);
  std::string answer;
  append_head(answer, {.status = info.status,
                       .content_type = kJsonType,
                       .content_length = body.size(),
                       .request_id = "none",
                       .date = hub_->date,
                       .fixed_fields = info.header,
                       .close = true});
  answer += body;
  ++hub_->counters.responses[static_cast<size_t>(info.status / 100)];
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(boost::asio::buffer(answer), ignored);
  socket.shutdown(tcp::socket::shutdown_both, ignored);
}

void Listener::on_accept_failed(error_code error) {
  if (error == boost::asio::error::connection_aborted) return accept_next();  // only that client
  ++hub_->counters.accept_paused;
  log::warn("{}: cannot accept a connection now ({})", hub_->name, error.value());
  if (error == boost::asio::error::no_descriptors || error.value() == ENFILE) {
    turn_away_with_reserve();
  }
  is_resting_ = true;
}

void Listener::turn_away_with_reserve() {
  if (reserve_fd_ < 0) return;
  ::close(reserve_fd_);
  const int client = accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
  if (client >= 0) ::close(client);
  reserve_fd_ = open_reserve();
}

}  // namespace tandem::serve
