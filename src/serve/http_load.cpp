// SPDX-License-Identifier: Apache-2.0
#include "serve/http_load.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string_view>
#include <vector>

namespace tandem::serve {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Reads one answer after the other out of the bytes of a connection; keeps no payload.
class AnswerReader {
 public:
  struct Seen {
    uint64_t events = 0;
    bool is_complete = false, is_bad = false;
    size_t used = 0;
  };

  Seen read(std::string_view bytes) {
    Seen seen;
    while (seen.used < bytes.size() && !seen.is_complete && !seen.is_bad) {
      const std::string_view rest = bytes.substr(seen.used);
      if (in_payload_ && left_ > 0) {
        const size_t count = std::min<uint64_t>(left_, rest.size());
        count_events(rest.substr(0, count), seen);
        left_ -= count;
        seen.used += count;
        if (left_ == 0 && !is_chunked_) finish(seen);
      } else {
        const size_t end = rest.find('\n');
        line_ += rest.substr(0, end);
        if (line_.size() > 8192) seen.is_bad = true;
        if (end == std::string_view::npos) {
          seen.used = bytes.size();
        } else {
          seen.used += end + 1;
          on_line(seen);
          line_.clear();
        }
      }
    }
    return seen;
  }

 private:
  void count_events(std::string_view payload, Seen& seen) {
    // Two line ends in a row, also across two pieces.
    size_t at = 0;
    while (at < payload.size()) {
      const size_t end = payload.find('\n', at);
      if (end == std::string_view::npos) {
        after_line_end_ = false;
        return;
      }
      if (after_line_end_ && end == at) {
        ++seen.events;
        after_line_end_ = false;
      } else {
        after_line_end_ = true;
      }
      at = end + 1;
    }
  }

  void on_line(Seen& seen) {
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (in_payload_) return on_chunk_line(line, seen);
    if (is_first_line_) {
      is_first_line_ = false;
      is_ok_ = line.starts_with("HTTP/1.1 200");
    } else if (line.starts_with("Content-Length: ")) {
      std::from_chars(line.data() + 16, line.data() + line.size(), left_);
    } else if (line == "Transfer-Encoding: chunked") {
      is_chunked_ = true;
    } else if (line.empty()) {
      in_payload_ = true;
      if (!is_chunked_ && left_ == 0) finish(seen);
    }
  }

  void on_chunk_line(std::string_view line, Seen& seen) {
    if (is_last_chunk_) return finish(seen);
    if (line.empty()) return;  // behind a chunk's data
    if (std::from_chars(line.data(), line.data() + line.size(), left_, 16).ec != std::errc()) {
      seen.is_bad = true;
    }
    is_last_chunk_ = left_ == 0;
  }

  void finish(Seen& seen) {
    seen.is_complete = true;
    seen.is_bad = !is_ok_;
    *this = {};
  }

  std::string line_;
  uint64_t left_ = 0;  // of the payload or of this chunk
  bool is_first_line_ = true, is_ok_ = false, is_chunked_ = false, in_payload_ = false;
  bool is_last_chunk_ = false, after_line_end_ = false;
};

struct Stream {
  int fd = -1;
  AnswerReader reader;
  double sent_s = 0, last_event_s = 0;
  bool is_busy = false;
};

class Load {
 public:
  explicit Load(const LoadOptions& options) : options_(options), epoll_(epoll_create1(0)) {}
  ~Load() {
    for (const Stream& stream : streams_) {
      if (stream.fd >= 0) close(stream.fd);
    }
    close(epoll_);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  Result<void> connect_all() {
    streams_.resize(static_cast<size_t>(options_.connections));
    for (size_t i = 0; i < streams_.size(); ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      streams_[i].fd = fd;
      sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(options_.port)};
      inet_pton(AF_INET, options_.address.c_str(), &to.sin_addr);
      if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
        return Error{ErrorCode::kUnavailable,
                     fmt::format("no connection {} of {} to {} port {}", i + 1,
                                 options_.connections, options_.address, options_.port),
                     {}};
      }
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }
    return {};
  }

  LoadResult run() {
    const double begin_s = now_s();
    end_s_ = begin_s + options_.seconds;
    for (Stream& stream : streams_) send_next(stream, begin_s);
    std::vector<epoll_event> events(256);
    while (busy_count_ > 0) {
      const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 100);
      const double now = now_s();
      if (now > end_s_ + options_.grace_seconds) break;
      for (int i = 0; i < count; ++i)
        on_readable(streams_[events[static_cast<size_t>(i)].data.u64]);
    }
    result_.failures += busy_count_;
    result_.seconds = last_answer_s_ - begin_s;
    return result_;
  }

 private:
  void send_next(Stream& stream, double now) {
    stream.is_busy = false;
    const bool is_enough = options_.requests > 0 && sent_count_ >= options_.requests;
    if (is_enough || now >= end_s_) return;
    // A request is smaller than a socket's buffer, so it goes in one piece.
    const ssize_t sent =
        send(stream.fd, options_.request.data(), options_.request.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(options_.request.size())) return fail(stream);
    ++sent_count_;
    ++busy_count_;
    stream.is_busy = true;
    stream.sent_s = now;
    stream.last_event_s = 0;
  }

  void fail(Stream& stream) {
    ++result_.failures;
    if (stream.is_busy) --busy_count_;
    stream.is_busy = false;
    close(stream.fd);
    stream.fd = -1;
  }

  void on_readable(Stream& stream) {
    if (stream.fd < 0) return;
    const ssize_t count = recv(stream.fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return fail(stream);
    const double now = now_s();
    result_.bytes += static_cast<uint64_t>(count);
    const AnswerReader::Seen seen =
        stream.reader.read({buffer_.data(), static_cast<size_t>(count)});
    add_events(stream, seen.events, now);
    if (seen.is_bad || !stream.is_busy) return fail(stream);
    if (!seen.is_complete) return;
    if (stream.last_event_s == 0) result_.first.add(now - stream.sent_s);
    ++result_.requests;
    --busy_count_;
    last_answer_s_ = now;
    send_next(stream, now);
  }

  void add_events(Stream& stream, uint64_t count, double now) {
    if (count == 0) return;
    result_.events += count;
    if (stream.last_event_s == 0) {
      result_.first.add(now - stream.sent_s);
    } else {
      result_.gap.add(now - stream.last_event_s);
    }
    for (uint64_t i = 1; i < count; ++i) result_.gap.add(0);  // they came together
    stream.last_event_s = now;
  }

  const LoadOptions& options_;
  const int epoll_;
  std::vector<Stream> streams_;
  std::vector<char> buffer_ = std::vector<char>(64 * 1024);
  LoadResult result_;
  uint64_t sent_count_ = 0, busy_count_ = 0;
  double end_s_ = 0, last_answer_s_ = 0;
};

}  // namespace

void LatencyHistogram::add(double seconds) {
  const double octaves = std::log2(std::max(seconds * 1e9, 1.0));
  const auto bucket = static_cast<size_t>(octaves * kPerOctave);
  ++counts_[std::min(bucket, counts_.size() - 1)];
  ++count_;
}

double LatencyHistogram::percentile_s(double percent) const {
  const double wanted = percent / 100 * static_cast<double>(count_);
  double seen = 0;
  for (size_t i = 0; i < counts_.size() && count_ > 0; ++i) {
    seen += static_cast<double>(counts_[i]);
    // The upper end of the bucket; the first one holds what came together with another.
    if (seen >= wanted)
      return i == 0 ? 0 : 1e-9 * std::exp2((static_cast<double>(i) + 1) / kPerOctave);
  }
  return 0;
}

Result<LoadResult> run_load(const LoadOptions& options) {
  if (options.connections < 1 || options.connections > 4096 || options.request.empty() ||
      options.request.size() > 64 * 1024 || !(options.seconds > 0 && options.seconds <= 3600)) {
    return Error{ErrorCode::kInvalidArgument,
                 "needs 1 to 4096 connections, a request of at most 64 KiB and 0 to 3600 seconds",
                 {}};
  }
  in_addr address{};
  if (inet_pton(AF_INET, options.address.c_str(), &address) != 1 ||
      (ntohl(address.s_addr) >> 24) != 127) {
    return Error{ErrorCode::kInvalidArgument, "the load generator is for 127.0.0.0/8 only", {}};
  }
  Load load(options);
  TRY(load.connect_all());
  return load.run();
}

}  // namespace tandem::serve
