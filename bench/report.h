// SPDX-License-Identifier: Apache-2.0
// What every benchmark program prints: a table for people and, with --json FILE, one JSON line per
// row {name, case, value, unit, limit, pct_of_limit, peer, peer_value, min, max, repeats}. All
// *_bench.cpp use it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::bench {

struct Timing {
  double median_s = 0, min_s = 0, max_s = 0;
  int repeats = 0;
};

struct MeasureOptions {
  double seconds_min = 0.5;  // keep repeating for so long …
  int repeats_min = 5;       // … and so often
  int repeats_max = 1000;
  bool flush_caches =
      false;  // walk over memory larger than the last-level cache before each repeat
};

// Times whole calls of `work` after one warm-up call. With --quick (see Report) the minimum time is
// cut to a tenth.
Timing measure(const std::function<void()>& work, const MeasureOptions& options = {});

// Keeps a result alive, so that the compiler can't drop the work that made it.
inline void keep(const void* p) {
  asm volatile("" : : "g"(p) : "memory");
}

struct Row {
  std::string name;       // "tokenizer/encode"
  std::string case_name;  // "english 10 MB"
  double value = 0;
  std::string unit;  // "MB/s", "us", "req/s": larger is better for rates, smaller for times
  std::optional<double> limit;  // the bound that physics or the target sets, same unit
  std::string peer;             // "tokenizers 0.22.1", measured in the same run
  std::optional<double> peer_value;
  std::optional<double> min, max;  // spread of value over the repeats
  int repeats = 0;

  // A rate from a timing: work/second, with its spread.
  static Row rate(std::string name, std::string case_name, double work, std::string unit,
                  const Timing& timing);
};

class Report {
 public:
  // Reads --json FILE, --filter TEXT (rows whose name or case contains it) and --quick; leaves
  // other arguments in args(). Wrong flags end the program with exit code 2 and one line.
  Report(int argc, char** argv, std::string title);

  [[nodiscard]] bool quick() const { return quick_; }
  [[nodiscard]] bool wants(std::string_view name, std::string_view case_name) const;
  [[nodiscard]] const std::vector<std::string>& args() const { return args_; }
  void add(Row row);                   // printed at once, so that a long run shows progress
  void note(const std::string& line);  // free text under the table: machine, settings
  // Writes the JSON file; returns main's exit code.
  int finish();

 private:
  std::string json_path_, filter_;
  bool quick_ = false;
  std::vector<std::string> args_;
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
};

}  // namespace tandem::bench
