// SPDX-License-Identifier: Apache-2.0
// One client's connection: reads requests one after the other, asks for the key, calls the handler,
// writes the answer, and notices when the client goes. Made by the listener (http_server.cpp).
//
// One request is in flight at most. The next one is looked at when the answer has been written, so
// a client that sends many and reads none costs `pipelined_bytes` of memory and no work.
// A read is always waited for, also while a handler works: its end of file or reset is how a client
// that has gone is noticed at once.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "serve/api_keys.h"
#include "serve/exchange.h"
#include "serve/http_limits.h"
#include "serve/http_parser.h"
#include "serve/http_response.h"
#include "serve/http_routes.h"

namespace tandem::serve {

class Connection;

// What the connections of one listener share. Only the I/O thread touches it.
struct ConnectionHub {
  explicit ConnectionHub(boost::asio::io_context& io_context) : io(io_context) {}

  boost::asio::io_context& io;
  std::string name;
  HttpLimits limits;
  HttpCounters counters;
  RouteTable routes;
  ApiKeys keys;
  std::string date;       // the response field of this second
  std::string id_prefix;  // of the request ids that we make; unique to this process
  uint64_t ids_made = 0;
  size_t bodies_bytes = 0;  // of all requests being read or in flight
  bool draining = false;
  std::vector<char> read_buffer = std::vector<char>(64 * 1024);  // between recv() and the parser
  std::vector<std::shared_ptr<Connection>> connections;
  std::unordered_map<uint64_t, size_t> connections_of;  // by client address, see Connection
  std::vector<std::shared_ptr<Connection>> to_flush;    // at the end of this loop turn
  std::function<void()> on_empty;                       // the last connection has closed
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // client: a number for the client's address, counted in hub->connections_of by the listener.
  Connection(std::shared_ptr<ConnectionHub> hub, boost::asio::ip::tcp::socket socket,
             uint64_t client);

  void start();              // once
  void tick(TimePoint now);  // deadlines
  void begin_drain();        // before the hub drains: ends the connection if it is idle
  void end_drain();          // a retryable error instead of the rest of the answer
  void drop();               // the server goes: the client is lost
  void flush();              // writes what sends of this loop turn have queued

 private:
  enum class State : uint8_t { kHead, kBody, kHandler, kFinishing, kLingering, kClosed };

  // Reading.
  void wait_readable();
  void on_readable();
  void receive(std::string_view bytes);
  size_t parse(std::string_view bytes);  // how many were used
  void parse_buffered();
  void parse_later();
  void on_head();
  void on_end_of_input();
  [[nodiscard]] bool charge_body();

  // Answering: one request.
  void call_handler();
  [[nodiscard]] ExchangeSink make_sink();
  void reply(int status, std::string_view content_type, std::string_view body,
             const std::vector<std::pair<std::string, std::string>>& fields);
  void begin_stream(std::string_view content_type);
  void send(std::string_view bytes);
  void end_stream();
  void abort_stream();  // without its end mark
  void refuse(Refusal refusal, bool close, std::string_view further_fields = {});
  void queue_answer(int status, std::string_view content_type, std::string_view body,
                    std::string_view fixed_fields,
                    const std::vector<std::pair<std::string, std::string>>& fields);
  void finish_answer();  // all of it is queued
  void on_answer_written();

  // Writing.
  void flush_later();
  bool write_queued();  // false: the kernel takes no more now, or the connection is closed
  [[nodiscard]] size_t unsent_bytes() const;

  // Ending.
  void linger();
  void lose_client(bool slow);
  void cut();  // reset
  void close();

  const std::shared_ptr<ConnectionHub> hub_;
  boost::asio::ip::tcp::socket socket_;
  const uint64_t client_;
  size_t hub_index_ = 0;

  State state_ = State::kHead;
  bool is_reading_ = false;  // a readiness wait is pending
  bool is_writing_ = false;
  bool is_parsing_ = false;
  bool is_flush_due_ = false;
  bool has_head_bytes_ = false;  // of the request that state kHead waits for
  bool is_at_end_ = false;       // the client has sent its last byte
  bool close_after_ = false;
  bool is_head_request_ = false;  // method HEAD: no answer has a body
  bool is_stream_ = false, is_event_stream_ = false;
  bool is_overflown_ = false;              // too much was unsent; the stream ends this loop turn
  TimePoint deadline_ = TimePoint::max();  // of the state
  TimePoint write_deadline_ = TimePoint::max();  // of writing_

  HttpParser parser_;
  std::string input_;  // received and not used yet
  size_t lingered_bytes_ = 0;

  std::weak_ptr<Exchange> exchange_;
  const Handler* handler_ = nullptr;
  uint64_t tenant_ = 0;
  TimePoint received_{};
  std::string request_id_;
  size_t charged_bytes_ = 0;  // of hub_->bodies_bytes

  std::string payload_;  // of a stream: becomes one chunk at the next flush
  std::string output_;   // framed and queued
  std::string writing_;  // being taken by the kernel
  size_t written_ = 0;
};

}  // namespace tandem::serve
