// SPDX-License-Identifier: Apache-2.0
#include "text/helper_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tandem::text {
namespace {

using Deadline = std::chrono::steady_clock::time_point;

static_assert(std::endian::native == std::endian::little, "frames are little endian");

// False when the deadline has come first.
bool wait_for(int socket, short events, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd entry{.fd = socket, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
    if (ready > 0) return true;
    CHECK(ready == 0 || errno == EINTR, "poll: {}", std::strerror(errno));
  }
}

// The two ends of a connection, both above the standard descriptors, so that the child's dup2 never
// overwrites the other end.
bool make_sockets(std::array<int, 2>& ends) {
  std::array<int, 2> raw{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, raw.data()) != 0) return false;
  bool ok = true;
  for (size_t i = 0; i < 2; ++i) {
    ends[i] = raw[i] > 2 ? raw[i] : fcntl(raw[i], F_DUPFD_CLOEXEC, 3);
    if (ends[i] != raw[i]) close(raw[i]);
    ok = ok && ends[i] >= 0;
  }
  return ok;
}

// posix_spawn's two settings objects, freed together.
class SpawnSettings {
 public:
  SpawnSettings() {
    CHECK(posix_spawn_file_actions_init(&actions_) == 0);
    CHECK(posix_spawnattr_init(&attributes_) == 0);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  void use_socket(int socket) {
    CHECK(posix_spawn_file_actions_adddup2(&actions_, socket, 0) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions_, socket, 1) == 0);
    CHECK(posix_spawn_file_actions_addopen(&actions_, 2, "/dev/null", O_WRONLY, 0) == 0);
    CHECK(posix_spawn_file_actions_addclosefrom_np(&actions_, 3) == 0);
    CHECK(posix_spawn_file_actions_addchdir_np(&actions_, "/") == 0);
  }
  // Whatever this process ignores or blocks, the child begins with the defaults.
  void reset_signals() {
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    CHECK(posix_spawnattr_setsigmask(&attributes_, &none) == 0);
    CHECK(posix_spawnattr_setsigdefault(&attributes_, &all) == 0);
    CHECK(posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) ==
          0);
  }
  int spawn(pid_t& pid, const std::vector<std::string>& argv) {
    std::vector<char*> pointers;
    for (const std::string& argument : argv)
      pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    char* no_environment[] = {nullptr};
    return posix_spawn(&pid, pointers[0], &actions_, &attributes_, pointers.data(), no_environment);
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

Result<HelperProcess> HelperProcess::start(const std::vector<std::string>& argv) {
  CHECK(!argv.empty());
  std::array<int, 2> ends{-1, -1};
  if (!make_sockets(ends)) {
    return Error{ErrorCode::kResourceExhausted, "no descriptors left for a helper process"};
  }
  SpawnSettings settings;
  settings.use_socket(ends[1]);
  settings.reset_signals();
  pid_t pid = -1;
  const int code = settings.spawn(pid, argv);
  close(ends[1]);
  if (code != 0) {
    close(ends[0]);
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} can't be started: {}", argv[0], std::strerror(code))};
  }
  return HelperProcess(pid, ends[0]);
}

HelperProcess::~HelperProcess() {
  stop();
}

HelperProcess::HelperProcess(HelperProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), socket_(std::exchange(other.socket_, -1)) {}

HelperProcess& HelperProcess::operator=(HelperProcess&& other) noexcept {
  if (this != &other) {
    stop();
    pid_ = std::exchange(other.pid_, -1);
    socket_ = std::exchange(other.socket_, -1);
  }
  return *this;
}

int HelperProcess::stop() {
  if (pid_ <= 0) return 0;
  close(socket_);
  int status = 0;
  // One that has just died keeps its own signal; SIGKILL can't be refused, so the wait is short.
  pid_t reaped = waitpid(pid_, &status, WNOHANG);
  if (reaped == 0) {
    kill(pid_, SIGKILL);
    do {
      reaped = waitpid(pid_, &status, 0);
    } while (reaped < 0 && errno == EINTR);
  }
  pid_ = -1;
  socket_ = -1;
  return reaped > 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

HelperProcess::Io HelperProcess::send_all(std::string_view data, Deadline deadline) const {
  while (!data.empty()) {
    const ssize_t sent = send(socket_, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      data.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket_, POLLOUT, deadline)) return Io::kDeadline;
    } else if (errno != EINTR) {
      return Io::kClosed;
    }
  }
  return Io::kDone;
}

HelperProcess::Io HelperProcess::receive_all(char* to, size_t bytes, Deadline deadline) const {
  while (bytes > 0) {
    if (!wait_for(socket_, POLLIN, deadline)) return Io::kDeadline;
    const ssize_t got = recv(socket_, to, bytes, MSG_DONTWAIT);
    if (got == 0) return Io::kClosed;
    if (got > 0) {
      to += got;
      bytes -= static_cast<size_t>(got);
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      return Io::kClosed;
    }
  }
  return Io::kDone;
}

Exchange HelperProcess::end_with(Io io) {
  if (io == Io::kDeadline) {
    stop();
    return {.end = Exchange::End::kDeadline};
  }
  // The socket closes a moment before a dying process can be reaped; stop() would then kill it and
  // hide the signal.
  siginfo_t info{};
  for (int i = 0;
       i < 100 && waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
       info.si_pid == 0;
       ++i) {
    poll(nullptr, 0, 1);
  }
  return {.end = Exchange::End::kDied, .signal = stop()};
}

Exchange HelperProcess::exchange(std::string_view frame, size_t answer_bytes_max,
                                 Deadline deadline) {
  CHECK(is_running());
  const auto frame_bytes = static_cast<uint32_t>(frame.size());
  CHECK(frame_bytes == frame.size());
  const std::string_view header(reinterpret_cast<const char*>(&frame_bytes), sizeof frame_bytes);
  Io io = send_all(header, deadline);
  if (io == Io::kDone) io = send_all(frame, deadline);
  if (io != Io::kDone) return end_with(io);
  uint32_t answer_bytes = 0;
  io = receive_all(reinterpret_cast<char*>(&answer_bytes), sizeof answer_bytes, deadline);
  if (io != Io::kDone) return end_with(io);
  if (answer_bytes > answer_bytes_max) {
    stop();
    return {.end = Exchange::End::kTooLarge};
  }
  Exchange result{.end = Exchange::End::kAnswer, .answer = std::string(answer_bytes, '\0')};
  io = receive_all(result.answer.data(), result.answer.size(), deadline);
  return io == Io::kDone ? result : end_with(io);
}

}  // namespace tandem::text
