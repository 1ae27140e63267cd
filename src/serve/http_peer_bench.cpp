// SPDX-License-Identifier: Apache-2.0
#include "serve/http_peer_bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>
#include <vector>

#include "core/check.h"

namespace tandem::serve {
namespace {

// The bench reads as fast as it can, so a full socket is waited for.
void write_all(int fd, const std::string& bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count =
        send(fd, bytes.data() + written, bytes.size() - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      written += static_cast<size_t>(count);
    } else {
      pollfd ready{.fd = fd, .events = POLLOUT};
      if (poll(&ready, 1, 1000) <= 0) return;
      if ((ready.revents & (POLLERR | POLLHUP)) != 0) return;
    }
  }
}

}  // namespace

BarePeer::BarePeer(PeerOptions options) : options_(std::move(options)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  CHECK(listen(listener_, 1024) == 0);
  CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

BarePeer::~BarePeer() {
  stop_ = true;
  thread_.join();
  close(listener_);
}

void BarePeer::run() {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event accepts{.events = EPOLLIN, .data = {.fd = listener_}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, listener_, &accepts);
  std::array<char, 16 * 1024> buffer;
  std::array<epoll_event, 256> ready;
  std::vector<int> open;
  std::vector<std::pair<int, int>> streams;  // descriptor, events left
  while (!stop_) {
    const int count = epoll_wait(epoll, ready.data(), ready.size(), streams.empty() ? 20 : 0);
    for (int i = 0; i < count; ++i) {
      int fd = ready[static_cast<size_t>(i)].data.fd;
      if (fd == listener_) {
        while ((fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0) {
          const int on = 1;
          setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
          epoll_event reads{.events = EPOLLIN, .data = {.fd = fd}};
          epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &reads);
          open.push_back(fd);
        }
      } else if (recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT) > 0) {
        write_all(fd, options_.head);
        if (options_.events_per_answer > 0) streams.emplace_back(fd, options_.events_per_answer);
      } else {
        epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr);
      }
    }
    for (auto& [fd, left] : streams) {
      write_all(fd, options_.event);
      if (--left == 0) write_all(fd, options_.tail);
    }
    std::erase_if(streams, [](const auto& stream) { return stream.second == 0; });
  }
  for (const int fd : open) close(fd);
  close(epoll);
}

}  // namespace tandem::serve
