// SPDX-License-Identifier: Apache-2.0
#include "serve/openai_prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "serve/gate.h"

namespace tandem::serve {
namespace {

constexpr size_t kTemplateWordsMax = 200;  // of a template's own complaint in an error

// Text so long that it can't fit the context is refused before it is tokenised.
Result<void> check_text_bytes(const GateContext& gate, size_t bytes, const std::string& field) {
  const GateLimits& limits = gate.limits;
  const size_t most =
      std::max(limits.prompt_bytes_min,
               static_cast<size_t>(gate.context_tokens_max) * limits.prompt_bytes_per_token_max);
  if (bytes <= most) return {};
  return Error{ErrorCode::kTooLarge,
               fmt::format("{} is {} bytes of text; a context of {} tokens takes at most {}", field,
                           bytes, gate.context_tokens_max, most),
               field};
}

Result<std::vector<text::PromptPiece>> render(const PrepareContext& context,
                                              const std::string& template_context) {
  if (context.chat_template == nullptr) {
    return Error{ErrorCode::kUnsupported, "this model has no chat template; use /v1/completions",
                 "messages"};
  }
  auto pieces = context.chat_template->render(template_context);
  if (pieces) return pieces;
  Error error = std::move(pieces).error();
  if (error.code == ErrorCode::kInvalidArgument) {
    return invalid_field("messages", fmt::format("the chat template refuses these messages: {:.{}}",
                                                 error.text, kTemplateWordsMax));
  }
  if (error.code == ErrorCode::kTooLarge) {
    error.text = "the rendered prompt is longer than this server allows";
  }
  error.param = "messages";
  return error;
}

size_t bytes_of(const std::vector<text::PromptPiece>& pieces) {
  size_t bytes = 0;
  for (const text::PromptPiece& piece : pieces) bytes += piece.text.size();
  return bytes;
}

Result<std::vector<int32_t>> encode_completion_prompt(const PrepareContext& context,
                                                      CompletionPrompt& prompt) {
  if (auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) return std::move(*ids);
  const auto& text = std::get<std::string>(prompt);
  TRY(check_text_bytes(context.gate, text.size(), "prompt"));
  return context.tokenizer->encode(text, context.prompt_specials);
}

Result<void> add_prompt(const PrepareContext& context, std::vector<int32_t> ids,
                        PreparedGeneration& out) {
  const size_t prompts = std::max<size_t>(out.request.prompts.size(), 1);
  const int32_t max_tokens = TRY(output_tokens(out.request, context.gate, ids.size(), prompts));
  out.prompts.push_back({std::move(ids), max_tokens});
  return {};
}

}  // namespace

Result<PreparedGeneration> prepare_generation(const PrepareContext& context, Endpoint endpoint,
                                              const std::string& body) {
  PreparedGeneration out;
  out.times.begun = context.clock->now();
  {
    simdjson::dom::parser parser;
    const JsonValue root = TRY(parse_json(parser, body, context.gate.limits.json));
    out.request = endpoint == Endpoint::kChat ? TRY(read_chat_request(root, context.gate))
                                              : TRY(read_completion_request(root, context.gate));
  }
  out.times.parsed = out.times.rendered = context.clock->now();
  if (endpoint == Endpoint::kChat) {
    const std::string& words = out.request.template_context;
    TRY(check_text_bytes(context.gate, words.size(), "messages"));
    const auto pieces = TRY(render(context, words));
    out.times.rendered = context.clock->now();
    TRY(check_text_bytes(context.gate, bytes_of(pieces), "messages"));
    TRY(add_prompt(context, text::encode_prompt(*context.tokenizer, pieces), out));
  }
  for (CompletionPrompt& prompt : out.request.prompts) {
    auto ids = TRY(encode_completion_prompt(context, prompt));
    TRY(add_prompt(context, std::move(ids), out));
  }
  out.times.tokenised = context.clock->now();
  return out;
}

Result<PlainAnswer> answer_tokenize(const PrepareContext& context, const std::string& body) {
  simdjson::dom::parser parser;
  const JsonValue root = TRY(parse_json(parser, body, context.gate.limits.json));
  const TokenizeRequest request = TRY(read_tokenize_request(root, context.gate));
  std::vector<int32_t> ids;
  if (request.template_context.empty()) {
    ids = context.tokenizer->encode(request.text, context.prompt_specials);
  } else {
    const auto pieces = TRY(render(context, request.template_context));
    ids = text::encode_prompt(*context.tokenizer, pieces);
  }
  nlohmann::ordered_json json = {
      {"count", ids.size()}, {"max_model_len", context.gate.context_tokens_max}, {"tokens", ids}};
  if (request.return_token_strings) {
    auto strings = nlohmann::ordered_json::array();
    for (const int32_t id : ids) {
      strings.push_back(context.tokenizer->decode(std::span(&id, 1), false));
    }
    json["token_strs"] = std::move(strings);
  }
  return PlainAnswer{json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                     request.unknown_fields};
}

Result<PlainAnswer> answer_detokenize(const PrepareContext& context, const std::string& body) {
  simdjson::dom::parser parser;
  const JsonValue root = TRY(parse_json(parser, body, context.gate.limits.json));
  const DetokenizeRequest request = TRY(read_detokenize_request(root, context.gate));
  const nlohmann::json json = {{"prompt", context.tokenizer->decode(request.tokens, false)}};
  return PlainAnswer{json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                     request.unknown_fields};
}

}  // namespace tandem::serve
