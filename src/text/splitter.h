// SPDX-License-Identifier: Apache-2.0
// Cuts a text into the pieces that BPE works on, by the regular expression of a tokenizer.json:
// the scanner of qwen_split.h for the Qwen patterns, PCRE2 for any other. tokenizer.cpp owns one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/qwen_split.h"

namespace tandem::text {

// A compiled pattern with limits on steps and memory; const, so threads may share it.
class PcreSplit {
 public:
  // kInvalidArgument: doesn't compile, or runs into the step limit on short probe texts.
  static Result<PcreSplit> compile(std::string_view pattern);
  ~PcreSplit();
  PcreSplit(PcreSplit&&) noexcept;
  PcreSplit& operator=(PcreSplit&&) noexcept;

  // Appends the piece ends in `text` (valid UTF-8), rising, the last one text.size(). Text between
  // matches is a piece too. False: a limit was hit; the text from the last end on is one piece.
  [[nodiscard]] bool piece_ends(std::string_view text, std::vector<size_t>& ends) const;

 private:
  struct State;
  explicit PcreSplit(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Splitter {
 public:
  static Result<Splitter> make(const UnicodeData& unicode, std::string_view pattern);

  // Calls visit(piece) for every piece of `text` (valid UTF-8), in order; none is empty.
  template <typename Visit>
  void for_each_piece(std::string_view text, Visit&& visit) const {
    if (qwen_) {
      const uint8_t* p = as_bytes(text.data());
      const uint8_t* end = p + text.size();
      while (p < end) {
        const uint8_t* piece_end = qwen_->piece_end(p, end);
        visit(
            std::string_view(reinterpret_cast<const char*>(p), static_cast<size_t>(piece_end - p)));
        p = piece_end;
      }
      return;
    }
    std::vector<size_t> ends;
    pcre_piece_ends(text, ends);
    size_t begin = 0;
    for (const size_t piece_end : ends) {
      visit(text.substr(begin, piece_end - begin));
      begin = piece_end;
    }
  }

 private:
  Splitter() = default;
  void pcre_piece_ends(std::string_view text, std::vector<size_t>& ends) const;

  std::optional<QwenSplit> qwen_;
  std::optional<PcreSplit> pcre_;
};

}  // namespace tandem::text
