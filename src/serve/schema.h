// SPDX-License-Identifier: Apache-2.0
// What a client may ask, as checked plain values: the gate (gate.h) makes these from JSON, the rest
// of serve/ trusts them. The limits are settings of app/; each has the default that stands here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/sampling.h"
#include "serve/json_reader.h"

namespace tandem::serve {

struct GateLimits {
  JsonLimits json;
  size_t messages_max = 4096;
  size_t content_parts_max = 4096;  // of one message
  size_t prompts_max = 128;         // of one completion request
  int32_t choices_max = 128;        // n x prompts
  int32_t logprobs_max = 20;        // logprobs, top_logprobs
  int64_t prompt_logprob_entries_max = int64_t{1}
                                       << 20;  // prompt tokens x (logprobs + 1) x choices
  size_t stops_max = 16;
  size_t stop_bytes_max = 256;  // of one stop string
  size_t stop_token_ids_max = 64;
  size_t logit_bias_max = 1024;
  int64_t output_tokens_max = int64_t{1} << 22;  // n x prompts x max_tokens
  size_t prompt_bytes_per_token_max = 32;  // text over context x this is refused before tokenising
  size_t prompt_bytes_min = 65536;         // ... but never below this
  size_t tools_max = 128;
  size_t tools_bytes_max = 256 * 1024;
  size_t tokenize_bytes_max = size_t{8} << 20;     // of /v1/tokenize
  size_t detokenize_tokens_max = size_t{1} << 20;  // of /v1/detokenize
  size_t name_bytes_max = 64;                      // of a message's author, a tool, a tool call id
  size_t user_bytes_max = 512;  // user, safety_identifier, prompt_cache_key, service_tier
  size_t metadata_max = 16;
  // Names that a request may set for the chat template, and nothing else of it.
  std::vector<std::string> template_kwargs = {"enable_thinking", "preserve_thinking",
                                              "reasoning_effort"};
  size_t template_kwarg_bytes_max = 64;
};

// What the gate compares a request with: facts of the engine and settings of the server.
struct GateContext {
  std::string model_name;
  int32_t vocab_size = 0;
  int32_t tokenizer_vocab_size = 0;
  int32_t context_tokens_max = 0;
  int64_t kv_tokens_max = 0;
  SamplingParams sampling_defaults;  // generation_config.json, where the request is silent
  std::vector<int32_t> eos_ids;
  GateLimits limits;
};

enum class Endpoint : uint8_t { kChat, kCompletions };

// A prompt of the completions endpoint: text, or ids that are below the vocabulary's size.
using CompletionPrompt = std::variant<std::string, std::vector<int32_t>>;

struct GenerationRequest {
  Endpoint endpoint = Endpoint::kChat;
  bool stream = false;
  bool include_usage = false;
  bool echo = false;  // completions only: the prompt stands before the answer
  bool skip_special_tokens = true;
  bool ignore_eos = false;
  bool has_seed = false;  // else the server draws one
  int32_t n = 1;          // choices of each prompt
  SamplingParams sampling;
  std::optional<int32_t> max_tokens;  // chat: absent = what the context leaves
  std::vector<std::string> stops;
  std::vector<int32_t> stop_token_ids;
  std::string template_context;           // chat: a JSON object for text::ChatTemplate
  std::vector<CompletionPrompt> prompts;  // completions
  size_t unknown_fields = 0;              // ignored, but counted
};

struct TokenizeRequest {
  std::string text;              // of `prompt`; unused where messages are given
  std::string template_context;  // of `messages`; empty without
  bool return_token_strings = false;
  size_t unknown_fields = 0;
};

struct DetokenizeRequest {
  std::vector<int32_t> tokens;
  size_t unknown_fields = 0;
};

}  // namespace tandem::serve
