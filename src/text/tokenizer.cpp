// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <fstream>
#include <system_error>
#include <utility>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/splitter.h"
#include "text/tokenizer_file.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace tandem::text {

struct Tokenizer::State {
  std::unique_ptr<const UnicodeData> unicode;
  Splitter splitter;
  Bpe bpe;
  AddedTokens added;
  bool nfc = false;
  std::vector<std::string> token_bytes;  // by id, added tokens too
  std::vector<bool> special;             // by id

  void encode_text(std::string_view text, std::vector<int32_t>& out, Bpe::Scratch& scratch) const;
};

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  const std::string name = tokenizer_json.string();
  std::error_code code;
  if (!std::filesystem::is_regular_file(tokenizer_json, code)) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: no such file", name), name};
  }
  const auto bytes = std::filesystem::file_size(tokenizer_json, code);
  if (code || bytes > kTokenizerFileBytesMax) {
    return Error{ErrorCode::kTooLarge,
                 fmt::format("{}: more than {} bytes", name, kTokenizerFileBytesMax), name};
  }
  std::string json(bytes, '\0');
  std::ifstream in(tokenizer_json, std::ios::binary);
  if (!in.read(json.data(), static_cast<std::streamsize>(bytes))) {
    return Error{ErrorCode::kDataLoss, fmt::format("{}: can't be read", name), name};
  }
  return parse(json, name);
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, std::string_view file_name) {
  TokenizerFile file = TRY(parse_tokenizer_file(json, file_name));
  auto unicode = std::make_unique<const UnicodeData>();
  auto splitter = Splitter::make(*unicode, file.split_pattern);
  if (!splitter) {
    const std::string field = "pre_tokenizer.pretokenizers[0].pattern.Regex";
    return Error{splitter.error().code,
                 fmt::format("{}: {}: {}", file_name, field, splitter.error().text), field};
  }
  auto state = std::make_unique<State>(State{.unicode = std::move(unicode),
                                             .splitter = std::move(splitter).value(),
                                             .bpe = Bpe(file.bpe),
                                             .added = {},
                                             .nfc = file.nfc,
                                             .token_bytes = std::move(file.bpe.token_bytes),
                                             .special = {}});
  state->token_bytes.resize(static_cast<size_t>(file.vocab_size));
  state->special.resize(static_cast<size_t>(file.vocab_size));
  for (const AddedToken& token : file.added) {
    state->added.add(token.content, token.id);
    state->token_bytes[static_cast<size_t>(token.id)] = token.content;
    state->special[static_cast<size_t>(token.id)] = token.special;
  }
  return Tokenizer(std::unique_ptr<const State>(std::move(state)));
}

// Text without added tokens: NFC, split, merge.
void Tokenizer::State::encode_text(std::string_view text, std::vector<int32_t>& out,
                                   Bpe::Scratch& scratch) const {
  std::string normalized;
  if (nfc && !is_surely_nfc(*unicode, text)) {
    normalized = to_nfc(*unicode, text);
    text = normalized;
  }
  splitter.for_each_piece(text, [&](std::string_view piece) { bpe.encode(piece, out, scratch); });
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, Specials specials) const {
  std::string replaced;
  if (!is_valid_utf8(text)) {
    replaced = replace_invalid(text);
    text = replaced;
  }
  std::vector<int32_t> out;
  out.reserve(text.size() / 4 + 16);
  Bpe::Scratch scratch;
  size_t done = 0;  // text before it has its ids
  for (size_t from = 0; from < text.size();) {
    const auto match = state_->added.find(text, from);
    if (!match) break;
    from = match->begin + match->bytes;
    // A special token's string that stays text takes part in the text around it.
    if (specials == Specials::kPlain && is_special(match->id)) continue;
    state_->encode_text(text.substr(done, match->begin - done), out, scratch);
    out.push_back(match->id);
    done = from;
  }
  state_->encode_text(text.substr(done), out, scratch);
  return out;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return state_->token_bytes[static_cast<size_t>(id)];
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && state_->special[static_cast<size_t>(id)];
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(state_->token_bytes.size());
}

std::optional<int32_t> Tokenizer::find_added(std::string_view content) const {
  return state_->added.find_exact(content);
}

std::vector<std::string> Tokenizer::special_strings() const {
  std::vector<std::string> out;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (is_special(id)) out.emplace_back(token_bytes(id));
  }
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!skip_special || !is_special(id)) bytes.append(token_bytes(id));
  }
  return is_valid_utf8(bytes) ? bytes : replace_invalid(bytes);
}

}  // namespace tandem::text
