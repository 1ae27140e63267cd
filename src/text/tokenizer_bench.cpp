// SPDX-License-Identifier: Apache-2.0
// Tokenizer speed on one core: tokenizer_bench [--python PYTHON] [--text FILE] [report flags].
// PYTHON (with the tokenizers and tiktoken packages) times the peers on the same texts in the same
// run. The English text: the licences of /usr/share/common-licenses and every line of the
// copyright files under /usr/share/doc that no earlier one had, in the order of their names; both
// are on every Debian system.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <unordered_set>

#include "bench/report.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace {

namespace fs = std::filesystem;
using tandem::bench::Report;
using tandem::bench::Row;
using tandem::text::ChatTemplate;
using tandem::text::Specials;
using tandem::text::Tokenizer;

constexpr double kTargetMbPerS = 40;
constexpr size_t kTextBytesMax = 10'000'000;

struct Case {
  std::string name, text;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<fs::path> sorted_files(const fs::path& folder, std::string_view name) {
  std::vector<fs::path> out;
  std::error_code code;
  for (const auto& entry : fs::recursive_directory_iterator(folder, code)) {
    if (entry.is_regular_file(code) && (name.empty() || entry.path().filename() == name)) {
      out.push_back(entry.path());
    }
  }
  std::ranges::sort(out);
  return out;
}

std::string licences() {
  std::string text;
  for (const fs::path& path : sorted_files("/usr/share/common-licenses", "")) {
    text += read_file(path);
  }
  return text;
}

std::string copyright_lines() {
  std::unordered_set<std::string> seen;
  std::string text;
  for (const fs::path& path : sorted_files("/usr/share/doc", "copyright")) {
    std::istringstream lines(read_file(path));
    for (std::string line; std::getline(lines, line) && text.size() < kTextBytesMax;) {
      if (seen.insert(line).second) text += line + "\n";
    }
  }
  return text;
}

std::vector<Case> cases_of(const std::string& text_path) {
  if (!text_path.empty()) return {{fs::path(text_path).filename(), read_file(text_path)}};
  std::string chinese;
  while (chinese.size() < 1'000'000) {
    chinese +=
        "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。\n";
  }
  return {{"english: licences", licences()},
          {"english: copyright lines", copyright_lines()},
          {"chinese: one sentence", std::move(chinese)},
          {"one letter", std::string(1'000'000, 'a')}};
}

struct Peer {
  std::string name;
  double mb_per_s;
};

// Runs the peers' script; it prints "name<TAB>MB/s" lines.
std::vector<Peer> time_peers(const std::string& python, const fs::path& vocabulary,
                             const std::string& text) {
  const fs::path path = fs::temp_directory_path() / "tandem_tokenizer_bench.txt";
  std::ofstream(path, std::ios::binary) << text;
  const std::string command = fmt::format("'{}' '{}' '{}' '{}'", python, TANDEM_PEERS_SCRIPT,
                                          vocabulary.string(), path.string());
  std::vector<Peer> peers;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 256> line{};
  while (pipe && std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    const std::string text_line = line.data();
    const size_t tab = text_line.find('\t');
    if (tab != std::string::npos) {
      peers.push_back({text_line.substr(0, tab), std::stod(text_line.substr(tab + 1))});
    }
  }
  fs::remove(path);
  return peers;
}

void bench_encode(Report& report, const Tokenizer& tokenizer, const fs::path& vocabulary,
                  const std::string& python, const Case& one) {
  if (!report.wants("tokenizer/encode", one.name) || one.text.empty()) return;
  const auto timing = tandem::bench::measure([&] {
    const auto ids = tokenizer.encode(one.text, Specials::kParse);
    tandem::bench::keep(ids.data());
  });
  const std::string name =
      fmt::format("{}, {:.1f} MB", one.name, static_cast<double>(one.text.size()) / 1e6);
  Row row = Row::rate("tokenizer/encode", name, static_cast<double>(one.text.size()) / 1e6, "MB/s",
                      timing);
  if (one.name.starts_with("english")) row.limit = kTargetMbPerS;
  const auto peers =
      python.empty() ? std::vector<Peer>() : time_peers(python, vocabulary, one.text);
  if (peers.empty()) report.add(row);
  for (const Peer& peer : peers) {
    row.peer = peer.name;
    row.peer_value = peer.mb_per_s;
    report.add(row);
  }
}

void bench_decode(Report& report, const Tokenizer& tokenizer, const Case& one) {
  if (!report.wants("tokenizer/detokenize", one.name)) return;
  const auto ids = tokenizer.encode(one.text, Specials::kParse);
  const auto timing = tandem::bench::measure([&] {
    tandem::text::Detokenizer detokenizer(tokenizer, true);
    std::string out;
    for (const int32_t id : ids) detokenizer.push(id, out);
    detokenizer.finish(out);
    tandem::bench::keep(out.data());
  });
  report.add(Row::rate("tokenizer/detokenize", one.name, static_cast<double>(ids.size()) / 1e6,
                       "M tokens/s", timing));
}

std::string conversation(int turns) {
  std::string messages;
  for (int i = 0; i < turns; ++i) {
    if (i > 0) messages += ",";
    messages += fmt::format(R"({{"role":"{}","content":"Message {} of a conversation, with some )"
                            R"(words in it so that it is as long as people write."}})",
                            i % 2 == 0 ? "user" : "assistant", i);
  }
  return R"({"messages":[)" + messages + R"(],"add_generation_prompt":true})";
}

void bench_template(Report& report, const Tokenizer& tokenizer, const fs::path& folder) {
  const auto chat = ChatTemplate::open(folder, tokenizer.special_strings(), {});
  if (!chat) {
    report.note(chat.error().text);
    return;
  }
  for (const int turns : {1, 20}) {
    const std::string name = fmt::format("{} messages", turns);
    if (!report.wants("template/render", name)) continue;
    const std::string context = conversation(turns);
    const auto timing = tandem::bench::measure([&] {
      const auto pieces = chat->render(context);
      tandem::bench::keep(&pieces);
    });
    report.add({.name = "template/render",
                .case_name = name,
                .value = timing.median_s * 1e6,
                .unit = "us",
                .min = timing.min_s * 1e6,
                .max = timing.max_s * 1e6,
                .repeats = timing.repeats});
  }
}

void bench_load(Report& report, const fs::path& vocabulary) {
  if (!report.wants("tokenizer/load", "file")) return;
  const auto timing = tandem::bench::measure([&] {
    const auto tokenizer = Tokenizer::load(vocabulary);
    tandem::bench::keep(&tokenizer);
  });
  report.add({.name = "tokenizer/load",
              .case_name = "file",
              .value = timing.median_s * 1e3,
              .unit = "ms",
              .min = timing.min_s * 1e3,
              .max = timing.max_s * 1e3,
              .repeats = timing.repeats});
}

}  // namespace

int main(int argc, char** argv) {
  Report report(argc, argv, "tokenizer and chat template, one core");
  std::map<std::string, std::string> options = {{"--python", ""}, {"--text", ""}};
  const std::vector<std::string>& args = report.args();
  for (size_t i = 0; i < args.size(); i += 2) {
    if (!options.contains(args[i]) || i + 1 == args.size()) {
      std::fprintf(stderr, "tokenizer_bench: unknown argument %s\n", args[i].c_str());
      return 2;
    }
    options[args[i]] = args[i + 1];
  }
  const bool has_real = !std::string_view(TANDEM_QWEN3_TOKENIZER).empty();
  const fs::path folder = has_real ? fs::path(TANDEM_QWEN3_TOKENIZER)
                                   : fs::path(TANDEM_SOURCE_DIR) / "models" / "tandem-small";
  report.note(has_real ? "vocabulary: the published Qwen3 (151,669 ids)"
                       : "vocabulary: models/tandem-small; the published Qwen3 one is not on this "
                         "machine (CMake setting TANDEM_QWEN3_TOKENIZER)");
  const fs::path vocabulary = folder / "tokenizer.json";
  const auto tokenizer = Tokenizer::load(vocabulary);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().text.c_str());
    return 1;
  }
  const std::vector<Case> cases = cases_of(options["--text"]);
  for (const Case& one : cases) {
    bench_encode(report, *tokenizer, vocabulary, options["--python"], one);
  }
  bench_decode(report, *tokenizer, cases.front());
  bench_template(report, *tokenizer, folder);
  bench_load(report, vocabulary);
  return report.finish();
}
