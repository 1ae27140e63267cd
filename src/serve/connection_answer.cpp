// SPDX-License-Identifier: Apache-2.0
// Answering and writing. Reading and ending: connection.cpp.
#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include "core/log.h"
#include "serve/connection.h"

namespace tandem::serve {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// A buffer that has grown beyond this is given back when it is empty.
constexpr size_t kKeptBytes = 4096;

// The last event of a stream that a drain has cut; the answer then ends without "[DONE]".
std::string shutting_down_event() {
  return fmt::format("data: {}\n\n", error_body(refusal_info(Refusal::kShuttingDown)));
}

void clear(std::string& buffer) {
  if (buffer.capacity() > kKeptBytes) {
    std::string().swap(buffer);
  } else {
    buffer.clear();
  }
}

}  // namespace

void Connection::call_handler() {
  state_ = State::kHandler;
  deadline_ = TimePoint::max();
  is_stream_ = is_event_stream_ = is_overflown_ = false;
  ++hub_->counters.requests_in_flight;
  ParsedHead& head = parser_.head();
  if (request_id_.empty()) {
    request_id_ = fmt::format("{}-{}", hub_->id_prefix, ++hub_->ids_made);
  }
  HttpRequest request{.method = std::move(head.method),
                      .path = std::move(head.path),
                      .content_type = std::move(head.content_type),
                      .body = std::move(parser_.body()),
                      .request_id = request_id_,
                      .traceparent = std::move(head.traceparent),
                      .tenant = tenant_,
                      .received = received_};
  parser_.reset();
  // The last reference may be dropped on a worker thread; the exchange dies on this one, because it
  // answers in its destructor if nobody else has.
  std::shared_ptr<Exchange> exchange(
      new Exchange(std::move(request), make_sink()), [hub = hub_](Exchange* dead) {
        boost::asio::dispatch(
            hub->io, [owned = std::unique_ptr<Exchange>(dead)]() mutable { owned.reset(); });
      });
  exchange_ = exchange;
  (*handler_)(std::move(exchange));
}

// The exchange makes no call after its end, so each call belongs to the request that is in flight.
// After client_gone() it makes none at all.
ExchangeSink Connection::make_sink() {
  const auto self = shared_from_this();
  return {.reply =
              [self](int status, std::string type, std::string body,
                     std::vector<std::pair<std::string, std::string>> fields) {
                self->reply(status, type, body, fields);
              },
          .begin_stream = [self](std::string type) { self->begin_stream(type); },
          .send = [self](std::string bytes) { self->send(bytes); },
          .end = [self] { self->end_stream(); },
          .unsent_bytes = [self] { return self->unsent_bytes(); },
          .abort = [self] { self->abort_stream(); }};
}

void Connection::reply(int status, std::string_view content_type, std::string_view body,
                       const std::vector<std::pair<std::string, std::string>>& fields) {
  if (state_ != State::kHandler) return;
  --hub_->counters.requests_in_flight;
  queue_answer(status, content_type, body, {}, fields);
}

void Connection::refuse(Refusal refusal, bool close, std::string_view further_fields) {
  ++hub_->counters.refused[static_cast<size_t>(refusal)];
  const RefusalInfo& info = refusal_info(refusal);
  if (refusal == Refusal::kBadMethod && further_fields.empty()) {
    further_fields = "Allow: GET, POST\r\n";
  }
  close_after_ = close_after_ || close;
  queue_answer(info.status, kJsonType, error_body(info),
               further_fields.empty() ? info.header : further_fields, {});
}

void Connection::queue_answer(int status, std::string_view content_type, std::string_view body,
                              std::string_view fixed_fields,
                              const std::vector<std::pair<std::string, std::string>>& fields) {
  if (request_id_.empty()) {
    request_id_ = fmt::format("{}-{}", hub_->id_prefix, ++hub_->ids_made);
  }
  const ResponseHead head{.status = status,
                          .content_type = content_type,
                          .content_length = body.size(),
                          .request_id = request_id_,
                          .date = hub_->date,
                          .fixed_fields = fixed_fields,
                          .close = close_after_ || hub_->draining};
  if (!append_head(output_, head, fields)) {
    log::error("{}: a handler's response field is malformed and was left out", hub_->name);
  }
  if (!is_head_request_) output_ += body;
  ++hub_->counters.responses[static_cast<size_t>(status / 100) % 6];
  finish_answer();
}

void Connection::begin_stream(std::string_view content_type) {
  if (state_ != State::kHandler) return;
  is_stream_ = true;
  is_event_stream_ = content_type.starts_with("text/event-stream");
  append_head(output_, {.content_type = content_type,
                        .request_id = request_id_,
                        .date = hub_->date,
                        .close = close_after_ || hub_->draining});
  ++hub_->counters.responses[2];
  flush_later();
}

void Connection::send(std::string_view bytes) {
  if (state_ != State::kHandler || is_overflown_) return;
  payload_ += bytes;
  if (unsent_bytes() <= hub_->limits.unsent_bytes) return flush_later();
  // Not at once: the handler that is sending is about to hear that its client has gone.
  is_overflown_ = true;
  boost::asio::post(hub_->io, [self = shared_from_this()] { self->lose_client(true); });
}

void Connection::end_stream() {
  if (state_ != State::kHandler || is_overflown_) return;
  --hub_->counters.requests_in_flight;
  if (!payload_.empty()) append_chunk(output_, payload_);
  clear(payload_);
  output_ += kLastChunk;
  state_ = State::kFinishing;
  flush_later();  // with what this loop turn has sent
}

void Connection::abort_stream() {
  if (state_ != State::kHandler) return;
  --hub_->counters.requests_in_flight;
  cut();
}

void Connection::finish_answer() {
  state_ = State::kFinishing;
  deadline_ = TimePoint::max();  // the write deadline holds
  flush();
}

void Connection::on_answer_written() {
  hub_->bodies_bytes -= std::exchange(charged_bytes_, 0);
  request_id_.clear();
  is_head_request_ = false;
  if (is_at_end_) return close();
  if (close_after_ || hub_->draining) return linger();
  parser_.reset();
  state_ = State::kHead;
  has_head_bytes_ = false;
  deadline_ = std::chrono::steady_clock::now() + hub_->limits.idle_deadline;
  if (is_parsing_) return;  // parse() goes on by itself
  if (input_.empty()) return wait_readable();
  parse_later();  // a handler that answers is not called again from inside its reply()
}

void Connection::end_drain() {
  const TimePoint last = std::chrono::steady_clock::now() + hub_->limits.linger_deadline;
  switch (state_) {
    case State::kHead:
    case State::kBody:
      refuse(Refusal::kShuttingDown, true);
      break;
    case State::kHandler: {
      const std::shared_ptr<Exchange> exchange = exchange_.lock();
      if (exchange) exchange->client_gone();  // stops the work; its calls are no-ops from here on
      if (state_ != State::kHandler) break;
      if (is_event_stream_) {
        ++hub_->counters.refused[static_cast<size_t>(Refusal::kShuttingDown)];
        close_after_ = true;
        payload_ += shutting_down_event();
        end_stream();
      } else if (is_stream_) {
        abort_stream();  // there is no other way to say that the rest is missing
      } else {
        --hub_->counters.requests_in_flight;
        refuse(Refusal::kShuttingDown, true);
      }
      break;
    }
    default:
      break;
  }
  if (state_ != State::kClosed) {
    deadline_ = std::min(deadline_, last);
    if (write_deadline_ != TimePoint::max()) write_deadline_ = std::min(write_deadline_, last);
  }
}

size_t Connection::unsent_bytes() const {
  return payload_.size() + output_.size() + writing_.size() - written_;
}

void Connection::flush_later() {
  if (is_flush_due_ || is_writing_) return;
  is_flush_due_ = true;
  hub_->to_flush.push_back(shared_from_this());
  if (hub_->to_flush.size() > 1) return;
  boost::asio::post(hub_->io, [hub = hub_] {
    const std::vector<std::shared_ptr<Connection>> due = std::move(hub->to_flush);
    hub->to_flush.clear();
    for (const std::shared_ptr<Connection>& connection : due) {
      connection->is_flush_due_ = false;
      connection->flush();
    }
  });
}

void Connection::flush() {
  if (is_writing_ || state_ == State::kClosed) return;
  while (!payload_.empty() || !output_.empty()) {
    if (!payload_.empty()) append_chunk(output_, payload_);
    clear(payload_);
    std::swap(output_, writing_);
    written_ = 0;
    if (!write_queued()) return;
  }
  if (state_ == State::kFinishing) on_answer_written();
}

bool Connection::write_queued() {
  while (written_ < writing_.size()) {
    error_code error;
    const size_t count = socket_.write_some(
        boost::asio::buffer(writing_.data() + written_, writing_.size() - written_), error);
    if (error == boost::asio::error::would_block) {
      if (write_deadline_ == TimePoint::max()) {
        write_deadline_ = std::chrono::steady_clock::now() + hub_->limits.write_deadline;
      }
      is_writing_ = true;
      socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](error_code failed) {
        self->is_writing_ = false;
        if (self->state_ == State::kClosed || failed == boost::asio::error::operation_aborted) {
          return;
        }
        if (self->write_queued()) self->flush();
      });
      return false;
    }
    if (error) {
      lose_client(false);
      return false;
    }
    hub_->counters.bytes_out += count;
    written_ += count;
  }
  clear(writing_);
  written_ = 0;
  write_deadline_ = TimePoint::max();
  return true;
}

}  // namespace tandem::serve
