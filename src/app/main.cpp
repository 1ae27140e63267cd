// SPDX-License-Identifier: Apache-2.0
// tandem serve | generate | inspect: see app/config.cpp for the flags.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "app/commands.h"
#include "app/config.h"
#include "core/log.h"

namespace tandem::app {

int fail_start(const Error& error) {
  std::string line = error.text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  fmt::print(stderr, "tandem: {}\n", line);
  return 2;
}

namespace {

void prepare_process() {
  // Prompts and keys must not land on a disk: no core files.
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // Each connection is a descriptor; take what the system grants.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  std::signal(SIGPIPE, SIG_IGN);
  auto logger = spdlog::stderr_logger_mt("tandem");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  spdlog::set_level(spdlog::level::warn);
}

// The vector loops need this much; an older processor would stop at an illegal instruction.
bool processor_is_supported() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("ssse3") != 0;
#else
  return true;
#endif
}

int run(int argc, const char* const* argv) {
  if (!processor_is_supported()) {
    return fail_start({ErrorCode::kUnsupported, "this processor lacks SSSE3", ""});
  }
  Result<Command> command = parse_command_line(argc, argv);
  if (!command.ok()) return fail_start(command.error());
  if (const auto* help = std::get_if<HelpFlags>(&command.value())) {
    fmt::print("{}", help->text);
    return 0;
  }
  if (const auto* serve = std::get_if<ServeFlags>(&command.value())) return run_serve(*serve);
  if (const auto* generate = std::get_if<GenerateFlags>(&command.value()))
    return run_generate(*generate);
  return run_inspect(std::get<InspectFlags>(command.value()));
}

}  // namespace
}  // namespace tandem::app

int main(int argc, char** argv) {
  tandem::app::prepare_process();
  return tandem::app::run(argc, argv);
}
