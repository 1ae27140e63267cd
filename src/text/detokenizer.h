// SPDX-License-Identifier: Apache-2.0
// Token ids of one stream to text, piece by piece, and the search for stop strings in it. One pair
// per choice of a request, owned by serve/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace tandem::text {

// Never gives half a character: bytes of an unfinished UTF-8 sequence wait for the next token. The
// pieces of push() and finish() joined equal Tokenizer::decode of the same ids.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // Appends the text that this token completes to `out`; may be nothing.
  void push(int32_t id, std::string& out);
  // The end: what still waits becomes U+FFFD.
  void finish(std::string& out);

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  // at most 3 bytes
};

// Finds the first stop string in a stream of pieces; text that may be the start of one is held back
// until it is known.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // none empty; see serve/ for the limits

  // Appends the text that is safe to show. True: a stop string was found; nothing after its start
  // is ever shown, and `out` got all before it.
  [[nodiscard]] bool push(std::string_view piece, std::string& out);
  void finish(std::string& out);  // the stream ended without a match: give what was held back

 private:
  std::vector<std::string> stops_;
  size_t longest_ = 0;
  std::string held_;
};

}  // namespace tandem::text
