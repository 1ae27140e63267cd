// SPDX-License-Identifier: Apache-2.0
#include "serve/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "serve/gate_messages.h"
#include "serve/gate_sampling.h"

namespace tandem::serve {
namespace {

constexpr size_t kAnyBytes = std::numeric_limits<size_t>::max();

// logprobs: true gives the drawn token's, top_logprobs: k the k best as well.
Result<void> read_chat_logprobs(ObjectReader& body, const GateLimits& limits,
                                SamplingParams& sampling) {
  sampling.logprobs = -1;
  const bool wanted = TRY(body.boolean("logprobs")).value_or(false);
  const auto top = TRY(body.integer("top_logprobs", 0, limits.logprobs_max));
  if (wanted) sampling.logprobs = static_cast<int32_t>(top.value_or(0));
  if (!wanted && top.value_or(0) > 0) {
    return invalid_field("top_logprobs", "top_logprobs needs logprobs: true");
  }
  return {};
}

// prompt: a string, a list of strings, a list of ids, or a list of lists of ids.
Result<void> read_prompts(ObjectReader& body, const GateContext& context,
                          GenerationRequest& request) {
  const auto prompt = body.value("prompt");
  if (!prompt) return invalid_field("prompt", "prompt is missing");
  if (prompt->is_string()) {
    request.prompts.emplace_back(std::string(TRY(read_text(*prompt, "prompt", kAnyBytes))));
    return {};
  }
  JsonArray items;
  if (prompt->get(items)) {
    return invalid_field("prompt", "prompt must be a string, a list of strings or of token ids");
  }
  if (items.size() == 0) return invalid_field("prompt", "prompt must not be empty");
  if ((*items.begin()).is_number()) {
    request.prompts.emplace_back(TRY(read_token_ids(items, "prompt", context.vocab_size)));
    return {};
  }
  if (items.size() > context.limits.prompts_max) {
    return invalid_field(
        "prompt", fmt::format("prompt has more than {} entries", context.limits.prompts_max));
  }
  for (const JsonValue item : items) {
    const std::string path = item_path("prompt", request.prompts.size());
    JsonArray ids;
    if (!item.get(ids)) {
      request.prompts.emplace_back(TRY(read_token_ids(ids, path, context.vocab_size)));
    } else {
      request.prompts.emplace_back(std::string(TRY(read_text(item, path, kAnyBytes))));
    }
  }
  return {};
}

}  // namespace

Result<GenerationRequest> read_chat_request(JsonValue value, const GateContext& context) {
  ObjectReader body = TRY(ObjectReader::of(value, ""));
  TRY(check_model(body, context));
  TRY(refuse_unsupported(body));
  GenerationRequest request;
  request.endpoint = Endpoint::kChat;
  TRY(read_shared(body, context, request));
  TRY(read_chat_logprobs(body, context.limits, request.sampling));
  if (TRY(body.boolean("echo")).value_or(false)) {
    return Error{ErrorCode::kUnsupported, "echo is not supported for chat", "echo"};
  }
  request.template_context = TRY(read_template_context(body, context.limits));
  request.unknown_fields += body.unknown();
  return request;
}

Result<GenerationRequest> read_completion_request(JsonValue value, const GateContext& context) {
  ObjectReader body = TRY(ObjectReader::of(value, ""));
  TRY(check_model(body, context));
  TRY(refuse_unsupported(body));
  GenerationRequest request;
  request.endpoint = Endpoint::kCompletions;
  request.echo = TRY(body.boolean("echo")).value_or(false);
  TRY(read_shared(body, context, request));
  const auto logprobs = TRY(body.integer("logprobs", 0, context.limits.logprobs_max));
  request.sampling.logprobs = static_cast<int32_t>(logprobs.value_or(-1));
  TRY(read_prompts(body, context, request));
  if (static_cast<int64_t>(request.prompts.size()) * request.n > context.limits.choices_max) {
    return invalid_field("n", fmt::format("n times the number of prompts must be at most {}",
                                          context.limits.choices_max));
  }
  request.unknown_fields += body.unknown();
  return request;
}

Result<TokenizeRequest> read_tokenize_request(JsonValue value, const GateContext& context) {
  ObjectReader body = TRY(ObjectReader::of(value, ""));
  TRY(check_model(body, context));
  TokenizeRequest request;
  request.return_token_strings = TRY(body.boolean("return_token_strs")).value_or(false);
  const bool has_prompt = body.value("prompt").has_value();
  if (has_prompt == body.value("messages").has_value()) {
    return invalid_field("prompt", "either prompt or messages must be given, and not both");
  }
  if (has_prompt) {
    request.text = *TRY(body.text("prompt", context.limits.tokenize_bytes_max));
  } else {
    request.template_context = TRY(read_template_context(body, context.limits));
  }
  request.unknown_fields = body.unknown();
  return request;
}

Result<DetokenizeRequest> read_detokenize_request(JsonValue value, const GateContext& context) {
  ObjectReader body = TRY(ObjectReader::of(value, ""));
  TRY(check_model(body, context));
  const auto tokens = TRY(body.array("tokens", context.limits.detokenize_tokens_max));
  if (!tokens) return invalid_field("tokens", "tokens is missing");
  DetokenizeRequest request;
  request.tokens = TRY(read_token_ids(*tokens, "tokens", context.vocab_size));
  request.unknown_fields = body.unknown();
  return request;
}

Result<int32_t> output_tokens(const GenerationRequest& request, const GateContext& context,
                              size_t prompt_tokens, size_t prompts) {
  const std::string field = request.endpoint == Endpoint::kChat ? "messages" : "prompt";
  if (prompt_tokens == 0) return invalid_field(field, field + " gives no token at all");
  const int64_t room = std::min<int64_t>(context.context_tokens_max, context.kv_tokens_max) -
                       static_cast<int64_t>(prompt_tokens);
  const bool scoring = request.max_tokens && *request.max_tokens == 0;
  if (room < (scoring ? 0 : 1)) {
    const bool by_cache = context.kv_tokens_max < context.context_tokens_max;
    return Error{
        ErrorCode::kTooLarge,
        fmt::format("{} has {} tokens, but {} tokens is the {}", field, prompt_tokens,
                    std::min<int64_t>(context.context_tokens_max, context.kv_tokens_max),
                    by_cache ? "most that this server's KV cache can hold" : "model's context"),
        field};
  }
  const int64_t wanted =
      std::min<int64_t>(request.max_tokens.value_or(std::numeric_limits<int32_t>::max()), room);
  if (request.sampling.min_tokens > wanted) {
    return invalid_field("min_tokens", "min_tokens does not fit behind this prompt");
  }
  const int64_t total = wanted * request.n * static_cast<int64_t>(prompts);
  if (total > context.limits.output_tokens_max) {
    return invalid_field(request.max_tokens ? "max_tokens" : "n",
                         fmt::format("n times max_tokens may ask for at most {} tokens in all",
                                     context.limits.output_tokens_max));
  }
  const int64_t entries = static_cast<int64_t>(prompt_tokens) * (request.sampling.logprobs + 1) *
                          request.n * static_cast<int64_t>(prompts);
  if (request.echo && entries > context.limits.prompt_logprob_entries_max) {
    return invalid_field("logprobs", fmt::format("the prompt's logprobs would be more than {}",
                                                 context.limits.prompt_logprob_entries_max));
  }
  return static_cast<int32_t>(wanted);
}

}  // namespace tandem::serve
