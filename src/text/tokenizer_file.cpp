// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "text/utf8.h"

namespace tandem::text {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kDepthMax = 64;

// Names from the file go into messages: short, and without control characters.
std::string shown(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 60)) {
    out += static_cast<uint8_t>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  if (name.size() > 60) out += "...";
  return replace_invalid(out);
}

// Characters of the file stand for bytes: printable Latin-1 for itself, the others from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_of_.fill(-1);
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool is_itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                             (byte >= 0xAE && byte <= 0xFF);
      byte_of_[is_itself ? byte : next++] = static_cast<int16_t>(byte);
    }
  }
  // nullopt: some character stands for no byte.
  [[nodiscard]] std::optional<std::string> to_bytes(std::string_view text) const {
    std::string out;
    const uint8_t* p = as_bytes(text.data());
    const uint8_t* end = p + text.size();
    while (p < end) {
      const CodePoint c = read_valid(p);
      p += c.bytes;
      if (c.value >= byte_of_.size() || byte_of_[c.value] < 0) return std::nullopt;
      out.push_back(static_cast<char>(byte_of_[c.value]));
    }
    return out;
  }

 private:
  std::array<int16_t, 256 + 68> byte_of_{};
};

class Reader {
 public:
  explicit Reader(std::string_view file_name) : file_name_(file_name) {}

  Result<TokenizerFile> read(std::string_view json);

 private:
  [[nodiscard]] Error error(ErrorCode code, std::string_view field, std::string_view what) const {
    return {code, fmt::format("{}: {} {}", file_name_, field, what), std::string(field)};
  }
  [[nodiscard]] Error invalid(std::string_view field, std::string_view what) const {
    return error(ErrorCode::kInvalidArgument, field, what);
  }
  [[nodiscard]] Error unsupported(std::string_view field, std::string_view what) const {
    return error(ErrorCode::kUnsupported, field, what);
  }

  // The member's value; nullopt where it is absent or null.
  static std::optional<element> member(object parent, std::string_view key) {
    element value;
    if (parent[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return value;
  }
  Result<object> need_object(object parent, std::string_view key, std::string_view field) const;
  Result<std::string_view> need_string(object parent, std::string_view key,
                                       std::string_view field) const;
  // Refuses a member that is anything but absent, null or `wanted`.
  Result<void> need_flag(object parent, std::string_view key, bool wanted,
                         std::string_view field) const;
  Result<int32_t> need_id(element value, std::string_view field) const;

  Result<void> read_normalizer(object root);
  Result<void> read_pre_tokenizer(object root);
  Result<void> check_byte_level(object step, std::string_view field) const;
  Result<void> check_tail(object root) const;
  Result<void> check_model_options(object model) const;
  Result<void> read_vocab(object model);
  Result<void> read_merges(object model);
  Result<Merge> read_merge(element entry, std::string_view field) const;
  Result<int32_t> merge_part(std::string_view part, std::string_view field) const;
  Result<void> read_added(object root);
  Result<AddedToken> read_added_token(object entry, std::string_view field);
  Result<void> check_ids() const;

  std::string file_name_;
  TokenizerFile file_;
  std::unordered_map<std::string_view, int32_t> ids_;  // by the file's spelling
  std::unordered_map<int32_t, std::string_view> names_;
};

Result<object> Reader::need_object(object parent, std::string_view key,
                                   std::string_view field) const {
  object value;
  if (parent[key].get(value) != simdjson::SUCCESS) return invalid(field, "must be an object");
  return value;
}

Result<std::string_view> Reader::need_string(object parent, std::string_view key,
                                             std::string_view field) const {
  std::string_view value;
  if (parent[key].get(value) != simdjson::SUCCESS) return invalid(field, "must be a string");
  return value;
}

Result<void> Reader::need_flag(object parent, std::string_view key, bool wanted,
                               std::string_view field) const {
  const std::optional<element> value = member(parent, key);
  if (!value) return {};
  bool flag = false;
  if (value->get(flag) != simdjson::SUCCESS) {
    return invalid(fmt::format("{}.{}", field, key), "must be true or false");
  }
  if (flag == wanted) return {};
  return unsupported(fmt::format("{}.{}", field, key),
                     flag ? "true is not supported" : "false is not supported");
}

Result<int32_t> Reader::need_id(element value, std::string_view field) const {
  int64_t id = 0;
  if (value.get(id) != simdjson::SUCCESS) return invalid(field, "must be a whole number");
  if (id < 0 || id > Bpe::kIdMax) {
    return invalid(field, fmt::format("is {}, not between 0 and {}", id, Bpe::kIdMax));
  }
  return static_cast<int32_t>(id);
}

Result<void> Reader::read_normalizer(object root) {
  if (!member(root, "normalizer")) return {};
  const object normalizer = TRY(need_object(root, "normalizer", "normalizer"));
  const auto type = TRY(need_string(normalizer, "type", "normalizer.type"));
  if (type != "NFC") {
    return unsupported("normalizer.type",
                       fmt::format("'{}' is not supported (NFC is)", shown(type)));
  }
  file_.nfc = true;
  return {};
}

Result<void> Reader::check_byte_level(object step, std::string_view field) const {
  TRY(need_flag(step, "add_prefix_space", false, field));
  // Absent means true for the format.
  if (!member(step, "use_regex")) {
    return unsupported(fmt::format("{}.use_regex", field), "true is not supported");
  }
  return need_flag(step, "use_regex", false, field);
}

// Exactly what the Qwen files have: a Split by a regular expression, then ByteLevel.
Result<void> Reader::read_pre_tokenizer(object root) {
  const object sequence = TRY(need_object(root, "pre_tokenizer", "pre_tokenizer"));
  const auto type = TRY(need_string(sequence, "type", "pre_tokenizer.type"));
  if (type != "Sequence") {
    return unsupported(
        "pre_tokenizer.type",
        fmt::format("'{}' is not supported (a Sequence of Split and ByteLevel is)", shown(type)));
  }
  simdjson::dom::array steps;
  if (sequence["pretokenizers"].get(steps) != simdjson::SUCCESS) {
    return invalid("pre_tokenizer.pretokenizers", "must be an array");
  }
  size_t idx = 0;
  for (const element value : steps) {
    const std::string field = fmt::format("pre_tokenizer.pretokenizers[{}]", idx);
    object step;
    if (value.get(step) != simdjson::SUCCESS) return invalid(field, "must be an object");
    const auto kind = TRY(need_string(step, "type", field + ".type"));
    if (idx >= 2 || kind != (idx == 0 ? "Split" : "ByteLevel")) {
      return unsupported(
          field + ".type",
          fmt::format("'{}' is not supported here (a Split, then a ByteLevel are)", shown(kind)));
    }
    if (idx == 1) {
      TRY(check_byte_level(step, field));
    } else {
      const auto behavior = TRY(need_string(step, "behavior", field + ".behavior"));
      if (behavior != "Isolated") {
        return unsupported(field + ".behavior",
                           fmt::format("'{}' is not supported (Isolated is)", shown(behavior)));
      }
      TRY(need_flag(step, "invert", false, field));
      const object pattern = TRY(need_object(step, "pattern", field + ".pattern"));
      file_.split_pattern = TRY(need_string(pattern, "Regex", field + ".pattern.Regex"));
    }
    ++idx;
  }
  if (idx != 2) return invalid("pre_tokenizer.pretokenizers", "must be a Split and a ByteLevel");
  return {};
}

// What stands after the model, and settings that change what encode() gives.
Result<void> Reader::check_tail(object root) const {
  for (const std::string_view key : {"truncation", "padding"}) {
    if (member(root, key)) return unsupported(key, "is not supported, only null");
  }
  const object decoder = TRY(need_object(root, "decoder", "decoder"));
  const auto decoder_type = TRY(need_string(decoder, "type", "decoder.type"));
  if (decoder_type != "ByteLevel") {
    return unsupported("decoder.type",
                       fmt::format("'{}' is not supported (ByteLevel is)", shown(decoder_type)));
  }
  if (!member(root, "post_processor")) return {};
  const object post = TRY(need_object(root, "post_processor", "post_processor"));
  const auto type = TRY(need_string(post, "type", "post_processor.type"));
  if (type != "ByteLevel") {
    return unsupported("post_processor.type",
                       fmt::format("'{}' is not supported (ByteLevel is)", shown(type)));
  }
  return {};
}

Result<void> Reader::check_model_options(object model) const {
  const auto type = TRY(need_string(model, "type", "model.type"));
  if (type != "BPE") {
    return unsupported("model.type", fmt::format("'{}' is not supported (BPE is)", shown(type)));
  }
  for (const std::string_view key : {"dropout", "unk_token"}) {
    if (member(model, key)) {
      return unsupported(fmt::format("model.{}", key), "is not supported, only null");
    }
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::optional<element> value = member(model, key);
    std::string_view text;
    if (value && (value->get(text) != simdjson::SUCCESS || !text.empty())) {
      return unsupported(fmt::format("model.{}", key), "is not supported, only an empty string");
    }
  }
  TRY(need_flag(model, "fuse_unk", false, "model"));
  return need_flag(model, "byte_fallback", false, "model");
}

Result<void> Reader::read_vocab(object model) {
  const object vocab = TRY(need_object(model, "vocab", "model.vocab"));
  const ByteAlphabet alphabet;
  std::vector<std::string>& tokens = file_.bpe.token_bytes;
  for (const simdjson::dom::key_value_pair entry : vocab) {
    const std::string field = fmt::format("model.vocab['{}']", shown(entry.key));
    const int32_t id = TRY(need_id(entry.value, field));
    if (entry.key.empty()) return invalid(field, "is an empty token");
    if (!ids_.try_emplace(entry.key, id).second) return invalid(field, "stands there twice");
    const auto [other, is_new] = names_.try_emplace(id, entry.key);
    if (!is_new) {
      return invalid(field, fmt::format("has the id {} of '{}'", id, shown(other->second)));
    }
    std::optional<std::string> bytes = alphabet.to_bytes(entry.key);
    if (!bytes) return invalid(field, "has a character outside of the byte alphabet");
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
    tokens[static_cast<size_t>(id)] = std::move(*bytes);
  }
  std::array<bool, 256> has_byte{};
  for (const std::string& token : tokens) {
    if (token.size() == 1) has_byte[static_cast<uint8_t>(token[0])] = true;
  }
  const auto missing = std::ranges::find(has_byte, false);
  if (missing == has_byte.end()) return {};
  return invalid("model.vocab",
                 fmt::format("has no token for the byte 0x{:02X}", missing - has_byte.begin()));
}

Result<int32_t> Reader::merge_part(std::string_view part, std::string_view field) const {
  const auto found = ids_.find(part);
  if (found == ids_.end()) {
    return invalid(field, fmt::format("names '{}', which is not in model.vocab", shown(part)));
  }
  return found->second;
}

// "a b" or ["a", "b"].
Result<Merge> Reader::read_merge(element entry, std::string_view field) const {
  std::string_view left;
  std::string_view right;
  std::string_view line;
  simdjson::dom::array pair;
  if (entry.get(line) == simdjson::SUCCESS) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return invalid(field, "must be two tokens with one space between");
    }
    left = line.substr(0, space);
    right = line.substr(space + 1);
  } else if (entry.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
             pair.at(0).get(left) != simdjson::SUCCESS ||
             pair.at(1).get(right) != simdjson::SUCCESS) {
    return invalid(field, "must be a string \"a b\" or an array of two strings");
  }
  Merge merge{};
  merge.left = TRY(merge_part(left, field));
  merge.right = TRY(merge_part(right, field));
  merge.result = TRY(merge_part(std::string(left) + std::string(right), field));
  return merge;
}

Result<void> Reader::read_merges(object model) {
  simdjson::dom::array merges;
  if (model["merges"].get(merges) != simdjson::SUCCESS) {
    return invalid("model.merges", "must be an array");
  }
  std::unordered_set<uint64_t> seen;
  size_t idx = 0;
  for (const element entry : merges) {
    const std::string field = fmt::format("model.merges[{}]", idx++);
    const Merge merge = TRY(read_merge(entry, field));
    const uint64_t pair =
        uint64_t{static_cast<uint32_t>(merge.left)} << 32 | static_cast<uint32_t>(merge.right);
    if (!seen.insert(pair).second) return invalid(field, "repeats an earlier merge");
    file_.bpe.merges.push_back(merge);
  }
  if (const std::optional<element> flag = member(model, "ignore_merges")) {
    if (flag->get(file_.bpe.ignore_merges) != simdjson::SUCCESS) {
      return invalid("model.ignore_merges", "must be true or false");
    }
  }
  return {};
}

Result<AddedToken> Reader::read_added_token(object entry, std::string_view field) {
  element id_value;
  if (entry["id"].get(id_value) != simdjson::SUCCESS) {
    return invalid(fmt::format("{}.id", field), "is missing");
  }
  AddedToken token;
  token.id = TRY(need_id(id_value, fmt::format("{}.id", field)));
  const std::string content_field = fmt::format("{}.content", field);
  const auto content = TRY(need_string(entry, "content", content_field));
  if (content.empty()) return invalid(content_field, "is empty");
  if (content.size() > kAddedTokenBytesMax) {
    return invalid(content_field, fmt::format("is longer than {} bytes", kAddedTokenBytesMax));
  }
  token.content = content;
  for (const std::string_view key : {"single_word", "lstrip", "rstrip", "normalized"}) {
    TRY(need_flag(entry, key, false, fmt::format("{} ('{}')", field, shown(content))));
  }
  if (const std::optional<element> flag = member(entry, "special")) {
    if (flag->get(token.special) != simdjson::SUCCESS) {
      return invalid(fmt::format("{}.special", field), "must be true or false");
    }
  }
  // A token of the vocabulary may be listed again, under its own id only.
  const auto same_name = ids_.find(content);
  const auto same_id = names_.find(token.id);
  const bool is_known = same_name != ids_.end() && same_name->second == token.id;
  if (!is_known && (same_name != ids_.end() || same_id != names_.end())) {
    const std::string owner =
        same_id != names_.end()
            ? fmt::format("has the id {} of '{}'", token.id, shown(same_id->second))
            : fmt::format("'{}' already has the id {}", shown(content), same_name->second);
    return invalid(field, owner);
  }
  ids_.try_emplace(content, token.id);
  names_.try_emplace(token.id, content);
  return token;
}

Result<void> Reader::read_added(object root) {
  const std::optional<element> list = member(root, "added_tokens");
  if (!list) return {};
  simdjson::dom::array tokens;
  if (list->get(tokens) != simdjson::SUCCESS) return invalid("added_tokens", "must be an array");
  std::unordered_set<std::string_view> seen;
  size_t idx = 0;
  for (const element value : tokens) {
    const std::string field = fmt::format("added_tokens[{}]", idx++);
    object entry;
    if (value.get(entry) != simdjson::SUCCESS) return invalid(field, "must be an object");
    file_.added.push_back(TRY(read_added_token(entry, field)));
    std::string_view content;
    if (entry["content"].get(content) == simdjson::SUCCESS && !seen.insert(content).second) {
      return invalid(field, fmt::format("repeats '{}'", shown(content)));
    }
  }
  return {};
}

Result<void> Reader::check_ids() const {
  const int64_t gaps = int64_t{file_.vocab_size} - static_cast<int64_t>(names_.size());
  if (gaps <= kIdGapsMax) return {};
  return invalid("model.vocab",
                 fmt::format("and added_tokens leave out {} of the ids below {}; at most {} may be "
                             "missing",
                             gaps, file_.vocab_size, kIdGapsMax));
}

Result<TokenizerFile> Reader::read(std::string_view json) {
  if (json.size() > kTokenizerFileBytesMax) {
    return error(ErrorCode::kTooLarge, "file",
                 fmt::format("has {} bytes, more than {}", json.size(), kTokenizerFileBytesMax));
  }
  simdjson::dom::parser parser;
  if (parser.allocate(std::max<size_t>(json.size(), 64), kDepthMax) != simdjson::SUCCESS) {
    return error(ErrorCode::kResourceExhausted, "file", "doesn't fit in memory");
  }
  const simdjson::padded_string padded(json);
  element document;
  const simdjson::error_code code = parser.parse(padded).get(document);
  if (code != simdjson::SUCCESS) {
    return invalid("file", fmt::format("is not valid JSON: {}", simdjson::error_message(code)));
  }
  object root;
  if (document.get(root) != simdjson::SUCCESS) return invalid("file", "must hold an object");
  TRY(read_normalizer(root));
  TRY(read_pre_tokenizer(root));
  TRY(check_tail(root));
  const object model = TRY(need_object(root, "model", "model"));
  TRY(check_model_options(model));
  TRY(read_vocab(model));
  TRY(read_merges(model));
  TRY(read_added(root));
  for (const auto& [id, name] : names_) file_.vocab_size = std::max(file_.vocab_size, id + 1);
  TRY(check_ids());
  return std::move(file_);
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view json, std::string_view file_name) {
  return Reader(file_name).read(json);
}

}  // namespace tandem::text
