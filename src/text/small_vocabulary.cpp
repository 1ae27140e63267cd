// SPDX-License-Identifier: Apache-2.0
#include "text/small_vocabulary.h"

#include <cstdint>

#include "text/utf8.h"

namespace tandem::text {
namespace {

bool is_printable(uint32_t byte) {
  return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

void append_all(std::initializer_list<std::string_view> parts, std::string& out) {
  for (const std::string_view part : parts) out.append(part);
}

void append_merge(std::string_view left, std::string_view right, bool as_pair, std::string& out) {
  if (!out.empty()) out += ',';
  if (as_pair) {
    append_all({"[", json_quoted(spelled(left)), ",", json_quoted(spelled(right)), "]"}, out);
  } else {
    std::string line = spelled(left);
    line += ' ';
    line += spelled(right);
    out += json_quoted(line);
  }
}

}  // namespace

std::string spelled(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t others_before = 0;
    for (uint32_t b = 0; b < byte; ++b) others_before += is_printable(b) ? 0 : 1;
    append_code_point(is_printable(byte) ? byte : 256 + others_before, out);
  }
  return out;
}

std::string json_quoted(std::string_view text) {
  std::string out(1, '"');
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
  return out;
}

std::string to_json(const SmallVocabulary& vocabulary) {
  std::string vocab;
  std::string merges;
  std::string added;
  int id = 0;
  const auto add = [&](std::string_view bytes) {
    if (id != 0) vocab += ',';
    append_all({json_quoted(spelled(bytes)), ":", std::to_string(id++)}, vocab);
  };
  for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(b)));
  for (const auto& [left, right] : vocabulary.merges) {
    add(left + right);
    append_merge(left, right, vocabulary.merges_as_pairs, merges);
  }
  for (const auto& [content, special] : vocabulary.added) {
    if (!added.empty()) added += ',';
    append_all({R"({"id":)", std::to_string(id++), R"(,"content":)", json_quoted(content),
                R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false)",
                R"(,"special":)", special ? "true}" : "false}"},
               added);
  }
  std::string out;
  append_all(
      {R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)", added,
       R"(],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)",
       R"({"type":"Split","pattern":{"Regex":)", json_quoted(vocabulary.pattern),
       R"(},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false)",
       R"(,"trim_offsets":false,"use_regex":false}]},"post_processor":null)",
       R"(,"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","dropout":null,"unk_token":null)",
       R"(,"continuing_subword_prefix":"","end_of_word_suffix":"","fuse_unk":false)",
       R"(,"byte_fallback":false,"ignore_merges":)", vocabulary.ignore_merges ? "true" : "false",
       R"(,"vocab":{)", vocab, R"(},"merges":[)", merges, "]}}"},
      out);
  return out;
}

}  // namespace tandem::text
