// SPDX-License-Identifier: Apache-2.0
// tandem_template_driver MODEL_DIR: chat contexts on standard input to prompts on standard output,
// for tests/text/test_chat_template_oracle.py. All numbers are little endian.
//   in   u32 bytes, a JSON object
//   out  u32 bytes, the rendered text, u32 count, i32 ids; text and ids of an error are the error's
//        words and nothing
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "text/chat_template.h"

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
    std::fprintf(stderr, "usage: tandem_template_driver MODEL_DIR\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const auto tokenizer = tandem::text::Tokenizer::load(folder / "tokenizer.json");
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().text.c_str());
    return 1;
  }
  const auto chat = tandem::text::ChatTemplate::open(folder, tokenizer->special_strings(), {});
  if (!chat) {
    std::fprintf(stderr, "%s\n", chat.error().text.c_str());
    return 1;
  }
  uint32_t bytes = 0;
  std::string context;
  while (read_exactly(&bytes, sizeof bytes)) {
    context.resize(bytes);
    if (!read_exactly(context.data(), context.size())) return 1;
    const auto pieces = chat->render(context);
    std::string text;
    std::vector<int32_t> ids;
    if (pieces) {
      for (const auto& piece : *pieces) text += piece.text;
      ids = tandem::text::encode_prompt(*tokenizer, *pieces);
    } else {
      text = pieces.error().text;
    }
    write_u32(text.size());
    std::fwrite(text.data(), 1, text.size(), stdout);
    write_u32(ids.size());
    std::fwrite(ids.data(), sizeof(int32_t), ids.size(), stdout);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
