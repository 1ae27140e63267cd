// SPDX-License-Identifier: Apache-2.0
// Accepts connections for one server and hands them on; holds the caps on how many there may be.
// Made by HttpServer. Running out of file descriptors never makes it spin or leaves a client
// hanging: one descriptor is kept in reserve to take that client in and turn it away, then
// accepting rests until the next tick.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "serve/connection.h"

namespace tandem::serve {

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // Errors: kInvalidArgument for an address that is not numeric, kUnavailable for one that can't be
  // listened on (port in use, no permission, not of this machine).
  static Result<std::shared_ptr<Listener>> open(std::shared_ptr<ConnectionHub> hub,
                                                const std::string& address, uint16_t port);
  Listener(std::shared_ptr<ConnectionHub> hub, boost::asio::ip::tcp::acceptor acceptor);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  void start();
  void tick();            // accepts again after a rest
  void accept_waiting();  // those that the kernel has accepted already, at most the backlog
  void close();           // the port is free afterwards

 private:
  void accept_next();
  void on_accepted(boost::asio::ip::tcp::socket socket);
  void on_accept_failed(boost::system::error_code error);
  void turn_away(boost::asio::ip::tcp::socket socket, Refusal refusal);
  void turn_away_with_reserve();

  const std::shared_ptr<ConnectionHub> hub_;
  boost::asio::ip::tcp::acceptor acceptor_;
  uint16_t port_;
  int reserve_fd_ = -1;
  bool is_resting_ = false;
};

}  // namespace tandem::serve
