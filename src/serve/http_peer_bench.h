// SPDX-License-Identifier: Apache-2.0
// The ceiling that http_bench compares with: a server that does no work at all. It neither parses
// nor checks nor frames; it waits, reads, and writes bytes that were made before. What it reaches
// is what the kernel, the loopback and the load generator allow on this machine.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace tandem::serve {

struct PeerOptions {
  std::string head;   // written at once for each read
  std::string event;  // then so often, one write each, round robin over the connections
  int events_per_answer = 0;
  std::string tail;  // behind the last event
};

class BarePeer {
 public:
  explicit BarePeer(PeerOptions options);
  ~BarePeer();
  BarePeer(const BarePeer&) = delete;
  BarePeer& operator=(const BarePeer&) = delete;
  [[nodiscard]] uint16_t port() const { return port_; }

 private:
  void run();

  const PeerOptions options_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace tandem::serve
