// SPDX-License-Identifier: Apache-2.0
#include "serve/openai_logprobs.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tandem::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The logprob as the shortest decimal of its float; NaN can't occur in a checked engine's answer,
// and would be the floor.
double shown(float logprob) {
  if (!(logprob >= kLogprobFloor)) return kLogprobFloor;
  return std::round(static_cast<double>(logprob) * 1e6) / 1e6 + 0.0;
}

std::string token_text(const text::Tokenizer& tokenizer, int32_t id) {
  return tokenizer.decode(std::span(&id, 1), false);
}

Json token_json(const text::Tokenizer& tokenizer, int32_t id, float logprob) {
  Json bytes = Json::array();
  for (const char c : tokenizer.token_bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_text(tokenizer, id)},
          {"logprob", shown(logprob)},
          {"bytes", std::move(bytes)}};
}

}  // namespace

int64_t characters_in(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; });
}

std::string chat_logprobs_json(const text::Tokenizer& tokenizer,
                               std::span<const ScoredToken> tokens) {
  Json content = Json::array();
  for (const ScoredToken& scored : tokens) {
    Json entry = token_json(tokenizer, scored.token.token, scored.token.logprob);
    Json top = Json::array();
    for (const TokenLogprob& other : scored.token.top) {
      top.push_back(token_json(tokenizer, other.token, other.logprob));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return dump({{"content", std::move(content)}, {"refusal", nullptr}});
}

std::string completion_logprobs_json(const text::Tokenizer& tokenizer,
                                     std::span<const ScoredToken> tokens) {
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const ScoredToken& scored : tokens) {
    std::string own = token_text(tokenizer, scored.token.token);
    offsets.push_back(scored.text_offset);
    if (!scored.has_logprob) {
      texts.push_back(std::move(own));
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    // Tokens whose texts are alike (parts of a character) share a key; the best one keeps it.
    Json top = Json::object();
    for (const TokenLogprob& other : scored.token.top) {
      const std::string key = token_text(tokenizer, other.token);
      if (!top.contains(key)) top[key] = shown(other.logprob);
    }
    if (!top.contains(own)) top[own] = shown(scored.token.logprob);
    texts.push_back(std::move(own));
    logprobs.push_back(shown(scored.token.logprob));
    tops.push_back(std::move(top));
  }
  return dump({{"tokens", std::move(texts)},
               {"token_logprobs", std::move(logprobs)},
               {"top_logprobs", std::move(tops)},
               {"text_offset", std::move(offsets)}});
}

}  // namespace tandem::serve
