// SPDX-License-Identifier: Apache-2.0
// Reading and ending. Answering and writing: connection_answer.cpp.
#include "serve/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

namespace tandem::serve {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// So much is done for one connection before the others get their turn.
constexpr int kReadsPerTurn = 4;
constexpr int kRequestsPerTurn = 16;

TimePoint now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

Connection::Connection(std::shared_ptr<ConnectionHub> hub, tcp::socket socket, uint64_t client)
    : hub_(std::move(hub)), socket_(std::move(socket)), client_(client), parser_(hub_->limits) {}

void Connection::start() {
  hub_index_ = hub_->connections.size();
  hub_->connections.push_back(shared_from_this());
  hub_->counters.connections_open = hub_->connections.size();
  // Options are wishes: where one fails, the connection works without it or fails at its first
  // read.
  error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  socket_.set_option(
      boost::asio::socket_base::send_buffer_size(static_cast<int>(hub_->limits.send_buffer_bytes)),
      ignored);
  deadline_ = now() + hub_->limits.head_deadline;
  wait_readable();
}

void Connection::wait_readable() {
  if (is_reading_ || is_at_end_ || state_ == State::kClosed) return;
  const bool answering = state_ == State::kHandler || state_ == State::kFinishing;
  if (answering && input_.size() >= hub_->limits.pipelined_bytes) return;  // tick() watches
  is_reading_ = true;
  // Only readiness is waited for, so an idle connection holds no buffer.
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
    self->is_reading_ = false;
    if (self->state_ == State::kClosed || error == boost::asio::error::operation_aborted) return;
    self->on_readable();
  });
}

void Connection::on_readable() {
  std::vector<char>& buffer = hub_->read_buffer;
  for (int i = 0; i < kReadsPerTurn; ++i) {
    error_code error;
    const size_t count = socket_.read_some(boost::asio::buffer(buffer), error);
    if (error == boost::asio::error::would_block) break;
    if (error) {
      if (error != boost::asio::error::eof) {
        lose_client(false);  // a reset: nobody reads an answer any more
        return;
      }
      on_end_of_input();
      return;
    }
    hub_->counters.bytes_in += count;
    receive({buffer.data(), count});
    const bool answering = state_ == State::kHandler || state_ == State::kFinishing;
    if (state_ == State::kClosed || count < buffer.size() || answering) break;
  }
  wait_readable();
}

// A client that closes its sending side and waits on can't be told from one that has closed the
// connection, so both count as gone while their answer is being made; see docs/http.md.
void Connection::on_end_of_input() {
  is_at_end_ = true;
  switch (state_) {
    case State::kHandler:
      lose_client(false);
      return;
    case State::kFinishing:  // the rest of the answer is still written
      return;
    default:
      close();
  }
}

void Connection::receive(std::string_view bytes) {
  switch (state_) {
    case State::kHead:
    case State::kBody:
      if (input_.empty()) {
        const size_t used = parse(bytes);
        const bool goes_on = state_ != State::kClosed && state_ != State::kLingering;
        if (goes_on && used < bytes.size()) input_.assign(bytes.substr(used));
      } else {
        input_ += bytes;
        parse_buffered();
      }
      return;
    case State::kLingering:
      lingered_bytes_ += bytes.size();
      if (lingered_bytes_ > hub_->limits.linger_bytes) close();
      return;
    default:
      input_ += bytes;
  }
}

void Connection::parse_buffered() {
  const size_t used = parse(input_);
  input_.erase(0, used);
  if (input_.empty()) std::string().swap(input_);  // idle connections hold no memory
}

void Connection::parse_later() {
  boost::asio::post(hub_->io, [self = shared_from_this()] {
    self->parse_buffered();
    self->wait_readable();
  });
}

size_t Connection::parse(std::string_view bytes) {
  size_t used = 0;
  int requests = 0;
  is_parsing_ = true;
  while (state_ == State::kHead || state_ == State::kBody) {
    if (requests == kRequestsPerTurn) {
      parse_later();
      break;
    }
    if (!has_head_bytes_ && used < bytes.size()) {
      has_head_bytes_ = true;
      deadline_ = now() + hub_->limits.head_deadline;
    }
    const HttpParser::Step step = parser_.feed(bytes.substr(used));
    used += step.consumed;
    if (state_ == State::kBody && !charge_body()) {
      refuse(Refusal::kBodiesTooLarge, true);
    } else if (step.status == HttpParser::Status::kHead) {
      on_head();
    } else if (step.status == HttpParser::Status::kComplete) {
      ++requests;
      call_handler();
    } else if (step.status == HttpParser::Status::kRefused) {
      refuse(step.refusal, true);
    } else {
      break;
    }
  }
  is_parsing_ = false;
  return used;
}

// Everything that can be refused without the body is refused before it is read.
void Connection::on_head() {
  ++hub_->counters.requests;
  received_ = now();
  const ParsedHead& head = parser_.head();
  request_id_ = head.request_id;
  close_after_ = !head.keep_alive;
  is_head_request_ = head.method == "HEAD";
  if (hub_->draining) return refuse(Refusal::kShuttingDown, true);

  // One path object is authorised and routed; a path without a route needs a key like any other.
  const RouteTable::Path* path = hub_->routes.find(head.path);
  tenant_ = 0;
  if (!hub_->keys.empty() && (path == nullptr || path->needs_key)) {
    const auto tenant = hub_->keys.tenant_of(head.authorization);
    if (!tenant) return refuse(Refusal::kBadKey, head.has_body);
    tenant_ = *tenant;
  }
  if (path == nullptr) return refuse(Refusal::kNoRoute, head.has_body);
  handler_ = path->find(head.method);
  if (handler_ == nullptr) return refuse(Refusal::kBadMethod, head.has_body, path->allow);
  if (head.content_length.value_or(0) > hub_->limits.bodies_bytes - hub_->bodies_bytes) {
    return refuse(Refusal::kBodiesTooLarge, true);
  }
  if (head.expects_continue) {
    output_ += kContinue;
    flush_later();
  }
  deadline_ = received_ + hub_->limits.body_deadline;
  state_ = State::kBody;
}

bool Connection::charge_body() {
  const size_t bytes = parser_.body().size();
  hub_->bodies_bytes += bytes - charged_bytes_;
  charged_bytes_ = bytes;
  return hub_->bodies_bytes <= hub_->limits.bodies_bytes;
}

void Connection::tick(TimePoint time) {
  if (write_deadline_ <= time) {
    lose_client(true);
    return;
  }
  if (deadline_ <= time) {
    switch (state_) {
      case State::kHead:
        has_head_bytes_ ? refuse(Refusal::kHeadDeadline, true) : linger();
        return;
      case State::kBody:
        return refuse(Refusal::kBodyDeadline, true);
      default:
        return close();
    }
  }
  if (state_ == State::kHandler && !is_reading_ && !is_at_end_) {
    // Reading is paused because the client has sent more than it may: ask for the end directly.
    pollfd end{.fd = socket_.native_handle(), .events = POLLRDHUP};
    if (poll(&end, 1, 0) > 0) lose_client(false);
  }
}

void Connection::begin_drain() {
  if (state_ != State::kHead || has_head_bytes_) return;
  on_readable();  // a request that has arrived is still served
  if (state_ == State::kHead && !has_head_bytes_) linger();
}

// Sends our end and reads on for a while: a close with unread input would reset the connection, and
// the reset could overtake the answer.
void Connection::linger() {
  if (is_at_end_) return close();
  state_ = State::kLingering;
  deadline_ = now() + hub_->limits.linger_deadline;
  lingered_bytes_ = 0;
  std::string().swap(input_);
  parser_.reset();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  wait_readable();
}

void Connection::drop() {
  lose_client(false);
}

void Connection::lose_client(bool slow) {
  const bool is_in_flight = state_ == State::kHandler;
  if (is_in_flight || state_ == State::kFinishing) {
    ++hub_->counters.clients_gone;
    if (slow) ++hub_->counters.clients_slow;
  }
  const std::shared_ptr<Exchange> exchange = is_in_flight ? exchange_.lock() : nullptr;
  if (is_in_flight) --hub_->counters.requests_in_flight;
  cut();
  if (exchange) exchange->client_gone();
}

void Connection::cut() {
  error_code ignored;
  socket_.set_option(boost::asio::socket_base::linger(true, 0), ignored);
  close();
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();  // the hub's reference goes below
  state_ = State::kClosed;
  deadline_ = write_deadline_ = TimePoint::max();
  error_code ignored;
  socket_.close(ignored);
  hub_->bodies_bytes -= std::exchange(charged_bytes_, 0);
  const auto of_client = hub_->connections_of.find(client_);
  if (--of_client->second == 0) hub_->connections_of.erase(of_client);
  hub_->connections.back()->hub_index_ = hub_index_;
  std::swap(hub_->connections[hub_index_], hub_->connections.back());
  hub_->connections.pop_back();
  hub_->counters.connections_open = hub_->connections.size();
  if (hub_->connections.empty() && hub_->on_empty) boost::asio::post(hub_->io, hub_->on_empty);
}

}  // namespace tandem::serve
