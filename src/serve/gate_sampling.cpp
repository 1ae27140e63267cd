// SPDX-License-Identifier: Apache-2.0
#include "serve/gate_sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

namespace tandem::serve {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

// Below this, logits / temperature overflows a float or picks the largest logit anyway: greedy.
constexpr double kGreedyBelow = 1e-4;

// Refused unless absent or null.
constexpr std::array<std::string_view, 28> kRefused = {"prompt_embeds",
                                                       "suffix",
                                                       "audio",
                                                       "functions",
                                                       "function_call",
                                                       "prediction",
                                                       "web_search_options",
                                                       "chat_template",
                                                       "guided_json",
                                                       "guided_regex",
                                                       "guided_choice",
                                                       "guided_grammar",
                                                       "structured_outputs",
                                                       "grammar",
                                                       "allowed_token_ids",
                                                       "bad_words",
                                                       "prompt_logprobs",
                                                       "logprob_token_ids",
                                                       "cache_salt",
                                                       "documents",
                                                       "mm_processor_kwargs",
                                                       "logits_processors",
                                                       "lora_path",
                                                       "kv_transfer_params",
                                                       "image",
                                                       "images",
                                                       "input_audio",
                                                       "length_penalty"};

// Refused unless they say what happens anyway.
struct OnlyValue {
  std::string_view key;
  bool value;
};
constexpr std::array<OnlyValue, 9> kOnlyValues = {{{"use_beam_search", false},
                                                   {"include_stop_str_in_output", false},
                                                   {"continue_final_message", false},
                                                   {"add_generation_prompt", true},
                                                   {"add_special_tokens", false},
                                                   {"spaces_between_special_tokens", true},
                                                   {"return_tokens_as_token_ids", false},
                                                   {"return_token_ids", false},
                                                   {"early_stopping", false}}};

Error unsupported(std::string_view field, std::string_view why) {
  return Error{ErrorCode::kUnsupported, fmt::format("{} {}", field, why), std::string(field)};
}

Result<void> refuse_response_format(ObjectReader& body) {
  auto format = TRY(body.object("response_format"));
  if (!format) return {};
  const auto type = TRY(format->text("type", 64));
  if (type && *type == "text") return {};
  return Error{ErrorCode::kUnsupported,
               "response_format.type must be \"text\": this server has no constrained decoding",
               "response_format.type"};
}

Result<void> refuse_modalities(ObjectReader& body) {
  const auto modalities = TRY(body.array("modalities", 8));
  if (!modalities) return {};
  for (const JsonValue item : *modalities) {
    std::string_view word;
    if (item.get(word) || word != "text")
      return unsupported("modalities", "may hold only \"text\"");
  }
  return {};
}

Result<void> read_best_of(ObjectReader& body, int32_t n) {
  const auto best_of = TRY(body.integer("best_of", 0, kInt32Max));
  if (best_of && *best_of != n) return unsupported("best_of", "must equal n");
  return {};
}

void put(const std::optional<double>& value, float& field) {
  if (value) field = static_cast<float>(*value);
}

Result<void> read_numbers(ObjectReader& body, const GateContext& context, SamplingParams& out) {
  const auto temperature = TRY(body.number("temperature", 0, 2));
  if (temperature) {
    out.temperature = *temperature < kGreedyBelow ? 0.0F : static_cast<float>(*temperature);
  }
  // The smallest float above zero, so that what is refused is 0 itself.
  constexpr double kAboveZero = std::numeric_limits<float>::min();
  put(TRY(body.number("top_p", kAboveZero, 1)), out.top_p);
  put(TRY(body.number("min_p", 0, 1)), out.min_p);
  put(TRY(body.number("presence_penalty", -2, 2)), out.presence_penalty);
  put(TRY(body.number("frequency_penalty", -2, 2)), out.frequency_penalty);
  put(TRY(body.number("repetition_penalty", 0.01, 10)), out.repetition_penalty);
  if (const auto top_k = TRY(body.integer("top_k", -1, kInt32Max))) {
    const auto all = static_cast<int64_t>(context.tokenizer_vocab_size);
    out.top_k = *top_k <= 0 || *top_k >= all ? 0 : static_cast<int32_t>(*top_k);
  }
  return {};
}

// Any 64-bit integer, signed or not: the bits are the seed.
Result<void> read_seed(ObjectReader& body, GenerationRequest& request) {
  const auto seed = body.value("seed");
  if (!seed) return {};
  request.has_seed = true;
  if (seed->type() == simdjson::dom::element_type::UINT64) {
    return seed->get(request.sampling.seed) ? invalid_field("seed", "seed must be an integer")
                                            : Result<void>();
  }
  request.sampling.seed = static_cast<uint64_t>(TRY(read_integer(
      *seed, "seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())));
  return {};
}

// The one spelling of a token id: no sign, no leading zero, no exponent.
std::optional<int32_t> token_of_key(std::string_view key, int32_t vocab_size) {
  int32_t id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool canonical = !key.empty() && (key == "0" || key[0] != '0') && key[0] != '-';
  if (error != std::errc() || end != key.data() + key.size() || !canonical) return std::nullopt;
  if (id >= vocab_size) return std::nullopt;
  return id;
}

Result<void> read_logit_bias(ObjectReader& body, const GateContext& context, SamplingParams& out) {
  const auto biases = TRY(body.object("logit_bias"));
  if (!biases) return {};
  if (biases->size() > context.limits.logit_bias_max) {
    return invalid_field("logit_bias", fmt::format("logit_bias has more than {} entries",
                                                   context.limits.logit_bias_max));
  }
  for (const ObjectReader::Field& field : biases->fields()) {
    const auto id = token_of_key(field.key, context.vocab_size);
    if (!id) {
      return invalid_field(
          "logit_bias",
          fmt::format("logit_bias names a token that is not an id below {}", context.vocab_size));
    }
    const std::string path = fmt::format("logit_bias.{}", *id);
    out.logit_bias.emplace_back(*id,
                                static_cast<float>(TRY(read_number(field.value, path, -100, 100))));
  }
  std::sort(out.logit_bias.begin(), out.logit_bias.end());
  return {};
}

Result<std::string> read_stop(JsonValue value, const std::string& path, size_t bytes_max) {
  const std::string_view stop = TRY(read_text(value, path, bytes_max));
  if (stop.empty()) return invalid_field(path, path + " must not be empty");
  return std::string(stop);
}

Result<void> read_stops(ObjectReader& body, const GateContext& context,
                        GenerationRequest& request) {
  const GateLimits& limits = context.limits;
  if (const auto stop = body.value("stop")) {
    if (stop->is_string()) {
      request.stops.push_back(TRY(read_stop(*stop, "stop", limits.stop_bytes_max)));
    } else {
      const auto stops = TRY(body.array("stop", limits.stops_max));
      size_t index = 0;
      for (const JsonValue item : *stops) {
        request.stops.push_back(
            TRY(read_stop(item, item_path("stop", index++), limits.stop_bytes_max)));
      }
    }
  }
  const auto ids = TRY(body.array("stop_token_ids", limits.stop_token_ids_max));
  if (ids) request.stop_token_ids = TRY(read_token_ids(*ids, "stop_token_ids", context.vocab_size));
  return {};
}

Result<void> read_lengths(ObjectReader& body, GenerationRequest& request) {
  const bool chat = request.endpoint == Endpoint::kChat;
  // Zero asks for no token: that makes sense only where the prompt itself is the answer.
  const int64_t low = request.echo ? 0 : 1;
  const auto max_tokens = TRY(body.integer("max_tokens", low, kInt32Max));
  const auto newer = TRY(body.integer("max_completion_tokens", low, kInt32Max));
  if (max_tokens && newer && *max_tokens != *newer) {
    return invalid_field("max_tokens", "max_tokens and max_completion_tokens differ");
  }
  if (const auto& asked = newer ? newer : max_tokens) {
    request.max_tokens = static_cast<int32_t>(*asked);
  }
  request.ignore_eos = TRY(body.boolean("ignore_eos")).value_or(false);
  if (request.ignore_eos && !request.max_tokens) {
    return invalid_field("ignore_eos", "ignore_eos needs max_tokens: nothing else would end it");
  }
  if (!chat && !request.max_tokens) request.max_tokens = 16;  // OpenAI's default
  const auto min_tokens = TRY(body.integer("min_tokens", 0, kInt32Max));
  if (min_tokens && request.max_tokens && *min_tokens > *request.max_tokens) {
    return invalid_field("min_tokens", "min_tokens must not be above max_tokens");
  }
  request.sampling.min_tokens = static_cast<int32_t>(min_tokens.value_or(0));
  return {};
}

Result<void> read_streaming(ObjectReader& body, GenerationRequest& request) {
  request.stream = TRY(body.boolean("stream")).value_or(false);
  auto options = TRY(body.object("stream_options"));
  if (!options) return {};
  if (!request.stream) {
    return invalid_field("stream_options", "stream_options is allowed only with stream: true");
  }
  request.include_usage = TRY(options->boolean("include_usage")).value_or(false);
  // Padding against traffic analysis is the client's wish at most; we send none.
  static_cast<void>(TRY(options->boolean("include_obfuscation")));
  if (TRY(options->boolean("continuous_usage_stats")).value_or(false)) {
    return unsupported("stream_options.continuous_usage_stats", "is not supported");
  }
  request.unknown_fields += options->unknown();
  return {};
}

Result<void> check_metadata(ObjectReader& body, const GateLimits& limits) {
  const auto metadata = TRY(body.object("metadata"));
  if (!metadata) return {};
  if (metadata->size() > limits.metadata_max) {
    return invalid_field("metadata",
                         fmt::format("metadata has more than {} entries", limits.metadata_max));
  }
  for (const ObjectReader::Field& field : metadata->fields()) {
    std::string_view text;
    if (field.key.size() > 64 || field.value.get(text) || text.size() > 512) {
      return invalid_field("metadata",
                           "metadata must map keys of <= 64 bytes to strings of <= 512 bytes");
    }
  }
  return {};
}

}  // namespace

Result<void> check_model(ObjectReader& body, const GateContext& context) {
  const auto model = TRY(body.text("model", std::numeric_limits<size_t>::max()));
  if (!model || *model == context.model_name) return {};
  return Error{ErrorCode::kNotFound, "this server does not serve that model; see GET /v1/models",
               "model"};
}

Result<void> refuse_unsupported(ObjectReader& body) {
  for (const std::string_view key : kRefused) {
    if (body.value(key)) return unsupported(key, "is not supported by this server");
  }
  for (const OnlyValue& only : kOnlyValues) {
    const auto value = TRY(body.boolean(only.key));
    if (value && *value != only.value) {
      return unsupported(only.key, only.value ? "can only be true" : "can only be false");
    }
  }
  TRY(refuse_response_format(body));
  return refuse_modalities(body);
}

Result<void> check_tolerated(ObjectReader& body, const GateLimits& limits) {
  for (const std::string_view key :
       {"user", "safety_identifier", "prompt_cache_key", "service_tier", "prompt_cache_retention",
        "reasoning_effort", "verbosity", "request_id"}) {
    static_cast<void>(TRY(body.text(key, limits.user_bytes_max)));
  }
  for (const std::string_view key : {"store", "parallel_tool_calls"}) {
    static_cast<void>(TRY(body.boolean(key)));
  }
  return check_metadata(body, limits);
}

Result<std::vector<int32_t>> read_token_ids(JsonArray items, const std::string& path,
                                            int32_t vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(items.size());
  for (const JsonValue item : items) {
    int64_t id = 0;
    if (item.type() == simdjson::dom::element_type::INT64 && !item.get(id) && id >= 0 &&
        id < vocab_size) {
      ids.push_back(static_cast<int32_t>(id));
      continue;
    }
    const auto refused = read_integer(item, item_path(path, ids.size()), 0, vocab_size - 1);
    return refused.error();
  }
  return ids;
}

Result<void> read_shared(ObjectReader& body, const GateContext& context,
                         GenerationRequest& request) {
  request.sampling = context.sampling_defaults;
  const auto n = TRY(body.integer("n", 1, context.limits.choices_max));
  request.n = static_cast<int32_t>(n.value_or(1));
  request.skip_special_tokens = TRY(body.boolean("skip_special_tokens")).value_or(true);
  TRY(read_best_of(body, request.n));
  TRY(read_numbers(body, context, request.sampling));
  TRY(read_seed(body, request));
  TRY(read_logit_bias(body, context, request.sampling));
  TRY(read_stops(body, context, request));
  TRY(read_lengths(body, request));
  TRY(read_streaming(body, request));
  return check_tolerated(body, context.limits);
}

}  // namespace tandem::serve
