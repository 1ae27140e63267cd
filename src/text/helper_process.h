// SPDX-License-Identifier: Apache-2.0
// A child process that answers frames over a socket, under a deadline. chat_template.cpp runs the
// Jinja2 helper in one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace tandem::text {

// What came back for a frame. After anything but kAnswer the process is gone.
struct Exchange {
  enum class End { kAnswer, kDeadline, kTooLarge, kDied };
  End end = End::kDied;
  std::string answer;
  int signal = 0;  // kDied: what killed it, 0 if it ended by itself
};

class HelperProcess {
 public:
  // Starts argv[0] with an empty environment, in "/", with standard input and output on a socket of
  // its own, standard error on /dev/null and no other descriptor.
  static Result<HelperProcess> start(const std::vector<std::string>& argv);
  ~HelperProcess();
  HelperProcess(HelperProcess&& other) noexcept;
  HelperProcess& operator=(HelperProcess&& other) noexcept;

  // Sends `frame` and waits for one frame of at most `answer_bytes_max`. A process that oversteps
  // the deadline or the size is killed.
  [[nodiscard]] Exchange exchange(std::string_view frame, size_t answer_bytes_max,
                                  std::chrono::steady_clock::time_point deadline);
  [[nodiscard]] bool is_running() const { return pid_ > 0; }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  enum class Io { kDone, kDeadline, kClosed };

  HelperProcess(pid_t pid, int socket) : pid_(pid), socket_(socket) {}
  Io send_all(std::string_view data, std::chrono::steady_clock::time_point deadline) const;
  Io receive_all(char* to, size_t bytes, std::chrono::steady_clock::time_point deadline) const;
  Exchange end_with(Io io);
  int stop();  // kills and reaps; the signal that ended it, or 0

  pid_t pid_ = -1;
  int socket_ = -1;
};

}  // namespace tandem::text
