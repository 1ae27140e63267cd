// SPDX-License-Identifier: Apache-2.0
// Every limit of the HTTP side, with its default, and the counters it keeps. app/ fills the limits
// from flags, the metrics read the counters on the I/O thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/clock.h"
#include "serve/http_error.h"

namespace tandem::serve {

struct HttpLimits {
  // One request.
  size_t head_bytes = 16 * 1024;         // request line and fields; over it: 431
  size_t field_count = 100;              // over it: 431
  size_t target_bytes = 4096;            // over it: 414
  size_t body_bytes = 32 * 1024 * 1024;  // over it: 413, before the body is read
  size_t chunk_line_bytes = 256;         // chunk size line with its extensions; over it: 400
  Duration head_deadline = std::chrono::seconds(10);  // first byte to end of head, else 408
  Duration body_deadline = std::chrono::seconds(60);  // end of head to end of body, else 408

  // One connection.
  Duration idle_deadline = std::chrono::seconds(75);   // between two requests, then closed
  Duration write_deadline = std::chrono::seconds(20);  // for the kernel to take one write
  size_t unsent_bytes = 4 * 1024 * 1024;  // of a stream; a client slower than that is gone
  size_t pipelined_bytes = 16 * 1024;     // kept while a request is in flight; then not read on
  Duration linger_deadline = std::chrono::seconds(2);  // reading on, so that an error arrives
  size_t linger_bytes = 1024 * 1024;
  size_t send_buffer_bytes = 128 * 1024;  // asked of the kernel, so that it can't hold much more

  // The listener.
  size_t connections = 4096;                // over it: 503
  size_t connections_per_ip = 1024;         // per IPv4 address or IPv6 /64; over it: 429
  size_t bodies_bytes = 512 * 1024 * 1024;  // of all requests being read or in flight; then 503
  int backlog = 1024;
  Duration tick = std::chrono::milliseconds(100);  // how often deadlines are looked at
};

// Plain numbers, written and read on the I/O thread only.
struct HttpCounters {
  uint64_t connections_accepted = 0;
  uint64_t connections_open = 0;        // now
  uint64_t accept_paused = 0;           // times that descriptors or memory for a connection ran out
  uint64_t requests = 0;                // complete heads
  uint64_t requests_in_flight = 0;      // now: with a handler
  std::array<uint64_t, 6> responses{};  // by status / 100
  std::array<uint64_t, kRefusalCount> refused{};  // by what the HTTP side itself refused
  uint64_t clients_gone = 0;                      // before the end of their answer
  uint64_t clients_slow = 0;  // of these: by the write deadline or too many unsent bytes
  uint64_t bytes_in = 0, bytes_out = 0;
};

}  // namespace tandem::serve
