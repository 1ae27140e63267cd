// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace tandem::bench {
namespace {

// Set by --quick before the first measurement of a bench program; a program has one Report.
double time_scale = 1.0;

void flush_caches() {
  static std::vector<uint64_t> block(size_t{96} << 17);  // 96 MiB, over the last-level cache
  uint64_t sum = 0;
  for (size_t i = 0; i < block.size(); i += 8) sum += ++block[i];
  keep(&sum);
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

[[noreturn]] void usage(const std::string& problem) {
  fmt::print(stderr, "{}; usage: [--json FILE] [--filter TEXT] [--quick]\n", problem);
  std::exit(2);
}

std::string number(double value) {
  if (value == 0 || (std::abs(value) >= 0.1 && std::abs(value) < 1e6)) {
    return fmt::format("{:.{}f}", value,
                       std::abs(value) >= 100  ? 0
                       : std::abs(value) >= 10 ? 1
                                               : 2);
  }
  return fmt::format("{:.3g}", value);
}

}  // namespace

Timing measure(const std::function<void()>& work, const MeasureOptions& options) {
  work();
  std::vector<double> times;
  double total = 0;
  while (static_cast<int>(times.size()) < options.repeats_max &&
         (static_cast<int>(times.size()) < options.repeats_min ||
          total < options.seconds_min * time_scale)) {
    if (options.flush_caches) flush_caches();
    times.push_back(seconds_of(work));
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  return {.median_s = times[times.size() / 2],
          .min_s = times.front(),
          .max_s = times.back(),
          .repeats = static_cast<int>(times.size())};
}

Row Row::rate(std::string name, std::string case_name, double work, std::string unit,
              const Timing& timing) {
  return {.name = std::move(name),
          .case_name = std::move(case_name),
          .value = work / timing.median_s,
          .unit = std::move(unit),
          .min = work / timing.max_s,
          .max = work / timing.min_s,
          .repeats = timing.repeats};
}

Report::Report(int argc, char** argv, std::string title) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--quick") {
      quick_ = true;
    } else if (arg == "--json" || arg == "--filter") {
      if (i + 1 == argc) usage(fmt::format("{} needs a value", arg));
      (arg == "--json" ? json_path_ : filter_) = argv[++i];
    } else if (arg.starts_with("--json=") || arg.starts_with("--filter=")) {
      (arg.starts_with("--json") ? json_path_ : filter_) = arg.substr(arg.find('=') + 1);
    } else {
      args_.emplace_back(arg);
    }
  }
  time_scale = quick_ ? 0.1 : 1.0;
  fmt::print("{}\n{:<34} {:<34} {:>12} {:<8} {:>22} {:>10} {:>6}  {}\n", title, "name", "case",
             "value", "unit", "min .. max", "limit", "%", "peer");
}

bool Report::wants(std::string_view name, std::string_view case_name) const {
  return filter_.empty() || name.find(filter_) != std::string_view::npos ||
         case_name.find(filter_) != std::string_view::npos;
}

void Report::add(Row row) {
  const std::string spread =
      row.min && row.max ? fmt::format("{} .. {}", number(*row.min), number(*row.max)) : "";
  const std::string percent =
      row.limit && *row.limit != 0 ? fmt::format("{:.0f}", 100 * row.value / *row.limit) : "";
  const std::string peer = row.peer_value
                               ? fmt::format("{} {} (x{:.2f})", row.peer, number(*row.peer_value),
                                             row.value / *row.peer_value)
                               : row.peer;
  fmt::print("{:<34} {:<34} {:>12} {:<8} {:>22} {:>10} {:>6}  {}\n", row.name, row.case_name,
             number(row.value), row.unit, spread, row.limit ? number(*row.limit) : "", percent,
             peer);
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

void Report::note(const std::string& line) {
  notes_.push_back(line);
}

int Report::finish() {
  for (const std::string& line : notes_) fmt::print("{}\n", line);
  if (json_path_.empty()) return 0;
  std::FILE* file = std::fopen(json_path_.c_str(), "a");
  if (file == nullptr) {
    fmt::print(stderr, "cannot open {} for writing\n", json_path_);
    return 2;
  }
  for (const Row& row : rows_) {
    const auto optional = [](const std::optional<double>& v) {
      return v ? nlohmann::json(*v) : nlohmann::json();
    };
    const nlohmann::json line = {
        {"name", row.name},
        {"case", row.case_name},
        {"value", row.value},
        {"unit", row.unit},
        {"limit", optional(row.limit)},
        {"pct_of_limit", row.limit && *row.limit != 0 ? nlohmann::json(100 * row.value / *row.limit)
                                                      : nlohmann::json()},
        {"peer", row.peer.empty() ? nlohmann::json() : nlohmann::json(row.peer)},
        {"peer_value", optional(row.peer_value)},
        {"min", optional(row.min)},
        {"max", optional(row.max)},
        {"repeats", row.repeats}};
    fmt::print(file, "{}\n", line.dump());
  }
  const bool written = std::fflush(file) == 0 && std::ferror(file) == 0;
  std::fclose(file);
  if (!written) fmt::print(stderr, "cannot write {}\n", json_path_);
  return written ? 0 : 2;
}

}  // namespace tandem::bench
