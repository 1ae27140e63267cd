// SPDX-License-Identifier: Apache-2.0
#include "app/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace tandem::app {
namespace {

constexpr std::chrono::milliseconds kTerminalEvery{100};
constexpr std::chrono::milliseconds kPlainEvery{5000};

}  // namespace

Progress::Progress(std::string what, bool quiet)
    : what_(std::move(what)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) != 0),
      begin_(std::chrono::steady_clock::now()),
      shown_(begin_) {}

void Progress::update(uint64_t done, uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (quiet_ || now - shown_ < (terminal_ ? kTerminalEvery : kPlainEvery)) return;
  shown_ = now;
  const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  fmt::print(stderr, "{}{}: {:.0f} of {:.0f} MB ({:.0f} %){}", terminal_ ? "\r" : "", what_,
             static_cast<double>(done) * 1e-6, static_cast<double>(total) * 1e-6, 100 * share,
             terminal_ ? "\033[K" : "\n");
  std::fflush(stderr);
}

void Progress::finish(const std::string& result) {
  if (quiet_) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin_;
  fmt::print(stderr, "{}{}: {} in {:.2f} s{}\n", terminal_ ? "\r" : "", what_, result, took.count(),
             terminal_ ? "\033[K" : "");
  std::fflush(stderr);
}

}  // namespace tandem::app
