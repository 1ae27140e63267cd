// SPDX-License-Identifier: Apache-2.0
// The paths of Service and the answers that need no engine: models, health, metrics.
#include <fmt/format.h>

#include <utility>

#include "serve/http_error.h"
#include "serve/json_writer.h"
#include "serve/service.h"

namespace tandem::serve {

std::vector<Route> Service::routes() {
  using Call = std::shared_ptr<Exchange>;
  const std::string model = model_json();
  const std::string list = fmt::format(R"({{"object":"list","data":[{}]}})", model);
  const auto fixed = [](std::string json) {
    return [json = std::move(json)](const Call& exchange) {
      exchange->reply(200, std::string(kJsonType), json);
    };
  };
  return {
      {"POST", "/v1/chat/completions",
       [this](Call exchange) { generate(Endpoint::kChat, std::move(exchange)); }},
      {"POST", "/v1/completions",
       [this](Call exchange) { generate(Endpoint::kCompletions, std::move(exchange)); }},
      {"POST", "/v1/tokenize",
       [this](Call exchange) { answer_plainly(answer_tokenize, std::move(exchange)); }},
      {"POST", "/v1/detokenize",
       [this](Call exchange) { answer_plainly(answer_detokenize, std::move(exchange)); }},
      {"GET", "/v1/models", fixed(list)},
      {"GET", "/v1/models/" + info_.model_name, fixed(model)},
  };
}

std::vector<Route> Service::admin_routes() {
  using Call = std::shared_ptr<Exchange>;
  return {
      {"GET", "/live", [this](const Call& exchange) { live(*exchange); }},
      {"GET", "/ready", [this](const Call& exchange) { ready(*exchange); }},
      {"GET", "/metrics",
       [this](const Call& exchange) {
         exchange->reply(200, std::string(kMetricsType),
                         metrics_text(metrics_, link_.status(), http_counters_));
       }},
  };
}

void Service::show_http_counters(std::string listener, const HttpCounters& counters) {
  http_counters_.push_back({std::move(listener), &counters});
}

std::string Service::model_json() const {
  std::string out = R"({"id":)";
  append_json_string(out, info_.model_name);
  out += fmt::format(R"(,"object":"model","created":{},"owned_by":"tandem","max_model_len":{}}})",
                     started_unix_, info_.context_tokens_max);
  return out;
}

void Service::live(Exchange& exchange) const {
  const auto why_not = health_.why_not_live(link_.status(), clock_.now());
  exchange.reply(why_not ? 503 : 200, std::string(kJsonType), health_json(why_not));
}

void Service::ready(Exchange& exchange) {
  auto why_not = health_.why_not_ready(link_.status(), !slots_.empty(), metrics_.completion_tokens,
                                       clock_.now());
  if (draining_) why_not = "the server is shutting down";
  exchange.reply(why_not ? 503 : 200, std::string(kJsonType), health_json(why_not));
}

}  // namespace tandem::serve
