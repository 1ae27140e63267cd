// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json up to the first NUL byte, then a text: loading never crashes, and a tokenizer
// that loads encodes any text and gives it back.
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tandem::text::Specials;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find('\0'), input.size());
  const auto tokenizer = tandem::text::Tokenizer::parse(input.substr(0, cut), "tokenizer.json");
  if (!tokenizer) {
    if (tokenizer.error().text.empty()) std::abort();
    return 0;
  }
  const std::string_view text = input.substr(std::min(cut + 1, size));
  for (const Specials specials : {Specials::kParse, Specials::kPlain}) {
    const auto ids = tokenizer->encode(text, specials);
    const std::string decoded = tokenizer->decode(ids, false);
    tandem::text::Detokenizer detokenizer(*tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) detokenizer.push(id, streamed);
    detokenizer.finish(streamed);
    if (streamed != decoded) std::abort();
  }
  return 0;
}
