// SPDX-License-Identifier: Apache-2.0
#include "text/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <utility>

#include "core/log.h"

namespace tandem::text {
namespace {

template <auto free_function>
struct Free {
  template <typename T>
  void operator()(T* p) const {
    free_function(p);
  }
};
using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

constexpr size_t kPatternBytesMax = 16384;
// Steps of one match. A pattern needs a step or so a character where it is no trap, and a piece of
// a million characters is legal.
constexpr uint32_t kMatchStepsMax = 20'000'000;
constexpr uint32_t kProbeStepsMax = 200'000;
constexpr size_t kJitStackBytesMax = size_t{1} << 20;
constexpr uint32_t kHeapKibMax = 65536;

PCRE2_SPTR subject_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// What makes a call of pcre2_match: made for each text, so that threads share only the code.
struct Matcher {
  Matcher(const pcre2_code* the_code, uint32_t steps_max)
      : code(the_code),
        context(pcre2_match_context_create(nullptr)),
        data(pcre2_match_data_create(1, nullptr)),
        stack(pcre2_jit_stack_create(32768, kJitStackBytesMax, nullptr)) {
    CHECK(context && data && stack);
    pcre2_set_match_limit(context.get(), steps_max);
    pcre2_set_depth_limit(context.get(), steps_max);
    pcre2_set_heap_limit(context.get(), kHeapKibMax);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }

  // The first match at or after `from` as [begin, end); nullopt with rc == PCRE2_ERROR_NOMATCH, or
  // with a limit's code.
  std::optional<std::pair<size_t, size_t>> next(std::string_view text, size_t from, int& rc) {
    rc = pcre2_match(code, subject_of(text), text.size(), from, PCRE2_NO_UTF_CHECK, data.get(),
                     context.get());
    if (rc < 0) return std::nullopt;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    return std::pair<size_t, size_t>{range[0], range[1]};
  }

  const pcre2_code* code;
  MatchContext context;
  MatchData data;
  JitStack stack;
};

// Texts that make patterns with nested repeats explode.
bool passes_probes(const pcre2_code* code) {
  for (const std::string_view unit : {"a", " ", "0", ".", "\n", "'", "ab ", "\xC3\xA9"}) {
    std::string probe;
    while (probe.size() < 2000) probe += unit;
    probe += '!';
    Matcher matcher(code, kProbeStepsMax);
    for (size_t at = 0; at < probe.size();) {
      int rc = 0;
      const auto match = matcher.next(probe, at, rc);
      if (!match && rc != PCRE2_ERROR_NOMATCH) return false;
      if (!match) break;
      at = match->second > at ? match->second : at + read_valid(as_bytes(probe.data()) + at).bytes;
    }
  }
  return true;
}

}  // namespace

struct PcreSplit::State {
  Code code;
};

PcreSplit::PcreSplit(std::unique_ptr<State> state) : state_(std::move(state)) {}
PcreSplit::~PcreSplit() = default;
PcreSplit::PcreSplit(PcreSplit&&) noexcept = default;
PcreSplit& PcreSplit::operator=(PcreSplit&&) noexcept = default;

Result<PcreSplit> PcreSplit::compile(std::string_view pattern) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  CHECK(context != nullptr);
  pcre2_set_max_pattern_length(context.get(), kPatternBytesMax);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int code_number = 0;
  PCRE2_SIZE at = 0;
  Code code(pcre2_compile(subject_of(pattern), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code_number, &at,
                          context.get()));
  if (!code) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("the regular expression is wrong at byte {}: {}", at, message_of(code_number))};
  }
  // Without JIT (some machines forbid it) the interpreter does the same, slower.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  if (!passes_probes(code.get())) {
    return Error{ErrorCode::kInvalidArgument,
                 "the regular expression takes more steps than allowed on a text of 2,000 bytes"};
  }
  return PcreSplit(std::make_unique<State>(State{std::move(code)}));
}

bool PcreSplit::piece_ends(std::string_view text, std::vector<size_t>& ends) const {
  Matcher matcher(state_->code.get(), kMatchStepsMax);
  size_t last_end = 0;
  const auto cut_at = [&](size_t end) {
    if (end > last_end) ends.push_back(end);
    last_end = end;
  };
  int rc = 0;
  for (size_t from = 0; from < text.size();) {
    const auto match = matcher.next(text, from, rc);
    if (!match) break;
    cut_at(match->first);  // an empty match cuts the text, too
    cut_at(match->second);
    const bool is_empty = match->first == match->second;
    from = match->second;
    if (is_empty && from < text.size()) from += read_valid(as_bytes(text.data()) + from).bytes;
  }
  cut_at(text.size());
  return rc >= 0 || rc == PCRE2_ERROR_NOMATCH;
}

Result<Splitter> Splitter::make(const UnicodeData& unicode, std::string_view pattern) {
  Splitter splitter;
  if (pattern == kQwen3Pattern || pattern == kQwen35Pattern) {
    splitter.qwen_.emplace(unicode, pattern == kQwen35Pattern);
  } else {
    splitter.pcre_.emplace(TRY(PcreSplit::compile(pattern)));
  }
  return splitter;
}

void Splitter::pcre_piece_ends(std::string_view text, std::vector<size_t>& ends) const {
  if (!pcre_->piece_ends(text, ends)) {
    log::warn(
        "the tokenizer's split pattern ran into its step limit; the rest of a text of {} "
        "bytes stays one piece, so its tokens may differ from the reference",
        text.size());
  }
}

}  // namespace tandem::text
