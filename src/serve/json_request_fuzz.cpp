// SPDX-License-Identifier: Apache-2.0
// A body to a checked request, for every endpoint that reads one. The first byte picks the
// endpoint. Whatever passes the gate must hold the limits that the engine relies on.
#include <nlohmann/json.hpp>
#include <string>

#include "core/check.h"
#include "serve/gate.h"
#include "serve/openai_error.h"

namespace tandem::serve {
namespace {

constexpr int32_t kVocab = 1000;

GateContext context() {
  return {.model_name = "m",
          .vocab_size = kVocab,
          .tokenizer_vocab_size = kVocab - 10,
          .context_tokens_max = 4096,
          .kv_tokens_max = 4096};
}

bool within(double value, double low, double high) {
  return value >= low && value <= high;
}

void check_request(const GenerationRequest& request, const GateContext& gate) {
  const SamplingParams& s = request.sampling;
  CHECK(request.n >= 1 && request.n <= gate.limits.choices_max);
  CHECK(within(s.temperature, 0, 2) && within(s.top_p, 1e-38, 1) && within(s.min_p, 0, 1));
  CHECK(within(s.presence_penalty, -2, 2) && within(s.frequency_penalty, -2, 2));
  CHECK(within(s.repetition_penalty, 0.001, 10) && s.top_k >= 0 && s.top_k < kVocab);
  CHECK(s.logprobs >= -1 && s.logprobs <= gate.limits.logprobs_max);
  for (size_t i = 0; i < s.logit_bias.size(); ++i) {
    const auto& [id, bias] = s.logit_bias[i];
    CHECK(id >= 0 && id < kVocab && within(bias, -100, 100));
    CHECK(i == 0 || s.logit_bias[i - 1].first < id);
  }
  for (const int32_t id : request.stop_token_ids) CHECK(id >= 0 && id < kVocab);
  CHECK(request.stops.size() <= gate.limits.stops_max);
  for (const std::string& stop : request.stops) CHECK(!stop.empty() && stop.size() <= 256);
  for (const CompletionPrompt& prompt : request.prompts) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
      for (const int32_t id : *ids) CHECK(id >= 0 && id < kVocab);
    }
  }
  if (request.endpoint == Endpoint::kChat) {
    // The template's helper reads it with another parser: it must be JSON to that one as well.
    CHECK(nlohmann::json::accept(request.template_context), "{}", request.template_context);
  } else {
    CHECK(!request.prompts.empty());
  }
  const auto output = output_tokens(request, gate, 10, std::max<size_t>(request.prompts.size(), 1));
  if (output) {
    CHECK(*output >= (request.echo ? 0 : 1) && *output <= 4086 && s.min_tokens <= *output);
  }
}

template <typename T>
void check_error(const Result<T>& result) {
  if (result.ok()) return;
  const auto json = nlohmann::json::parse(error_json(result.error()));
  CHECK(json["error"]["message"].is_string() && http_status(result.error().code) < 500);
}

}  // namespace
}  // namespace tandem::serve

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::serve;
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const GateContext gate = context();
  simdjson::dom::parser parser;
  const auto root = parse_json(parser, body, gate.limits.json);
  check_error(root);
  if (!root) return 0;
  if (data[0] % 4 < 2) {
    const auto request =
        data[0] % 4 == 0 ? read_chat_request(*root, gate) : read_completion_request(*root, gate);
    check_error(request);
    if (request) check_request(*request, gate);
  } else if (data[0] % 4 == 2) {
    check_error(read_tokenize_request(*root, gate));
  } else {
    check_error(read_detokenize_request(*root, gate));
  }
  return 0;
}
