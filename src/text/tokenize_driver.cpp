// SPDX-License-Identifier: Apache-2.0
// tandem_tokenize_driver TOKENIZER_JSON: texts on standard input to ids on standard output, for
// tests/text/test_tokenizer_oracle.py. All numbers are little endian.
//   in   u32 mode (0 specials become ids, 1 they stay text), u32 bytes, the text
//   out  u32 count, i32 ids, u32 bytes, the text that they decode to
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace {

bool read_exactly(void* to, size_t bytes) {
  return std::fread(to, 1, bytes, stdin) == bytes;
}

void write_u32(size_t value) {
  const auto narrow = static_cast<uint32_t>(value);
  std::fwrite(&narrow, sizeof narrow, 1, stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tandem_tokenize_driver TOKENIZER_JSON\n");
    return 2;
  }
  const auto tokenizer = tandem::text::Tokenizer::load(argv[1]);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().text.c_str());
    return 1;
  }
  uint32_t header[2] = {};
  std::string text;
  while (read_exactly(header, sizeof header)) {
    text.resize(header[1]);
    if (!read_exactly(text.data(), text.size())) return 1;
    const auto specials =
        header[0] == 0 ? tandem::text::Specials::kParse : tandem::text::Specials::kPlain;
    const std::vector<int32_t> ids = tokenizer->encode(text, specials);
    write_u32(ids.size());
    std::fwrite(ids.data(), sizeof(int32_t), ids.size(), stdout);
    const std::string decoded = tokenizer->decode(ids, false);
    write_u32(decoded.size());
    std::fwrite(decoded.data(), 1, decoded.size(), stdout);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
