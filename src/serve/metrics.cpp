// SPDX-License-Identifier: Apache-2.0
#include "serve/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace tandem::serve {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

double seconds(Duration value) {
  return std::chrono::duration<double>(value).count();
}

// Collects families; the helpers keep one line per metric below.
class Families {
 public:
  void counter(const char* name, const char* help, int64_t value, Labels labels = {}) {
    ClientMetric& metric = add(name, help, MetricType::Counter, std::move(labels));
    metric.counter.value = static_cast<double>(value);
  }
  void gauge(const char* name, const char* help, double value, Labels labels = {}) {
    add(name, help, MetricType::Gauge, std::move(labels)).gauge.value = value;
  }
  void histogram(const char* name, const char* help, const Histogram& source, Labels labels = {});
  [[nodiscard]] std::string text() const { return prometheus::TextSerializer().Serialize(all_); }

 private:
  ClientMetric& add(const char* name, const char* help, MetricType type, Labels labels);
  std::vector<MetricFamily> all_;
};

ClientMetric& Families::add(const char* name, const char* help, MetricType type, Labels labels) {
  auto family = std::find_if(all_.begin(), all_.end(),
                             [name](const MetricFamily& other) { return other.name == name; });
  if (family == all_.end()) {
    family = all_.insert(all_.end(), MetricFamily{name, help, type, {}});
  }
  family->metric.emplace_back();
  family->metric.back().label = std::move(labels);
  return family->metric.back();
}

void Families::histogram(const char* name, const char* help, const Histogram& source,
                         Labels labels) {
  ClientMetric& metric = add(name, help, MetricType::Histogram, std::move(labels));
  uint64_t cumulative = 0;
  for (size_t i = 0; i < source.counts().size(); ++i) {
    cumulative += static_cast<uint64_t>(source.counts()[i]);
    ClientMetric::Bucket bucket;
    bucket.cumulative_count = cumulative;
    bucket.upper_bound = i < Histogram::kBounds.size() ? Histogram::kBounds[i]
                                                       : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back(bucket);
  }
  metric.histogram.sample_count = static_cast<uint64_t>(source.count());
  metric.histogram.sample_sum = seconds(source.sum());
}

void add_requests(Families& out, const Metrics& m) {
  out.counter("tandem_requests_total", "Requests that reached a handler", m.requests);
  for (size_t i = 0; i < m.ended.size(); ++i) {
    out.counter("tandem_requests_ended_total", "How requests ended", m.ended[i],
                {{"outcome", std::string(kOutcomeNames[i])}});
  }
  for (size_t i = 0; i < m.errors.size(); ++i) {
    out.counter("tandem_errors_total", "Answers with an error, by kind", m.errors[i],
                {{"kind", std::string(error_code_name(static_cast<ErrorCode>(i)))}});
  }
  out.gauge("tandem_requests_running", "Requests with the engine now",
            static_cast<double>(m.running));
  out.gauge("tandem_requests_preparing", "Requests being parsed and tokenised now",
            static_cast<double>(m.preparing));
  out.gauge("tandem_streams", "Of the running requests, streamed ones",
            static_cast<double>(m.streams));
  out.counter("tandem_slow_clients_total", "Streams cancelled for a client that read too slowly",
              m.slow_clients);
  out.counter("tandem_unknown_fields_total", "Request fields that were ignored", m.unknown_fields);
  out.counter("tandem_prompt_tokens_total", "Tokens of prompts", m.prompt_tokens);
  out.counter("tandem_cached_prompt_tokens_total", "Of these, found in the prefix cache",
              m.cached_tokens);
  out.counter("tandem_completion_tokens_total", "Tokens generated", m.completion_tokens);
}

void add_times(Families& out, const Metrics& m) {
  out.histogram("tandem_first_token_seconds", "Request head to the first token's bytes",
                m.first_token);
  for (size_t i = 0; i < m.first_token_parts.size(); ++i) {
    out.histogram("tandem_first_token_part_seconds", "Its parts; their sums add up to it",
                  m.first_token_parts[i], {{"part", std::string(kFirstTokenPartNames[i])}});
  }
  out.histogram("tandem_inter_token_seconds", "Between two tokens of one choice", m.inter_token);
  out.histogram("tandem_request_seconds", "Request head to the end of the answer", m.request);
}

void add_worker(Families& out, const engine::EngineStatus::Worker& w, size_t index) {
  const Labels role = {{"role", w.role}, {"worker", std::to_string(index)}};
  out.gauge("tandem_queue_requests", "Requests waiting in a worker", w.waiting, role);
  out.gauge("tandem_batch_requests", "Requests running in a worker", w.running, role);
  out.gauge("tandem_batch_rows", "Rows of the last step", static_cast<double>(w.batch_rows_last),
            role);
  for (const auto& [state, pages] :
       {std::pair{"free", w.pages_free}, std::pair{"cached", w.pages_cached},
        std::pair{"used", w.pages_used}, std::pair{"quarantined", w.pages_quarantined}}) {
    Labels labels = role;
    labels.push_back({"state", state});
    out.gauge("tandem_pages", "KV pages by state", pages, std::move(labels));
  }
  out.gauge("tandem_pages_all", "KV pages of a worker", w.pages_total, role);
  out.counter("tandem_tokens_computed_total", "Tokens that went through the model",
              w.tokens_computed, role);
  out.counter("tandem_prefix_hit_tokens_total", "Prompt tokens found in the prefix cache",
              w.prefix_hit_tokens, role);
  out.counter("tandem_prefix_asked_tokens_total", "Prompt tokens looked up in the prefix cache",
              w.prefix_asked_tokens, role);
  out.counter("tandem_preemptions_total", "Requests set back for lack of pages", w.preemptions,
              role);
}

void add_engine(Families& out, const engine::EngineStatus& status) {
  out.counter("tandem_engine_steps_total", "Turns of the engine's loop", status.steps);
  out.gauge("tandem_engine_accepting", "1 while the engine takes new requests",
            status.accepting ? 1 : 0);
  for (size_t i = 0; i < status.workers.size(); ++i) add_worker(out, status.workers[i], i);
  out.counter("tandem_handoffs_total", "Prompts handed from prefill to decode", status.handoffs);
  out.counter("tandem_handoff_bytes_total", "KV bytes handed over", status.handoff_bytes);
  out.counter("tandem_handoff_rejects_total", "Handoffs that failed a check",
              status.handoff_rejects);
}

void add_http(Families& out, const NamedHttpCounters& named) {
  const HttpCounters& c = *named.counters;
  const Labels listener = {{"listener", named.listener}};
  const auto count = [](uint64_t value) { return static_cast<int64_t>(value); };
  out.counter("tandem_http_connections_total", "Connections accepted",
              count(c.connections_accepted), listener);
  out.gauge("tandem_http_connections", "Connections open now",
            static_cast<double>(c.connections_open), listener);
  out.counter("tandem_http_accept_pauses_total", "Times accepting stopped for lack of descriptors",
              count(c.accept_paused), listener);
  out.counter("tandem_http_requests_total", "Complete request heads", count(c.requests), listener);
  for (size_t i = 1; i < c.responses.size(); ++i) {
    out.counter("tandem_http_responses_total", "Responses by class", count(c.responses[i]),
                {{"listener", named.listener}, {"class", std::to_string(i) + "xx"}});
  }
  for (size_t i = 0; i < c.refused.size(); ++i) {
    const auto& info = refusal_info(static_cast<Refusal>(i));
    out.counter("tandem_http_refused_total", "Requests that the HTTP side refused",
                count(c.refused[i]),
                {{"listener", named.listener}, {"reason", std::string(info.code)}});
  }
  out.counter("tandem_http_clients_gone_total", "Clients that left before the end",
              count(c.clients_gone), listener);
  out.counter("tandem_http_bytes_total", "Bytes", count(c.bytes_in),
              {{"listener", named.listener}, {"direction", "in"}});
  out.counter("tandem_http_bytes_total", "Bytes", count(c.bytes_out),
              {{"listener", named.listener}, {"direction", "out"}});
}

}  // namespace

void Histogram::observe(Duration value, int64_t times) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds(value));
  counts_[static_cast<size_t>(bound - kBounds.begin())] += times;
  count_ += times;
  sum_ += value * times;
}

std::string metrics_text(const Metrics& metrics, const engine::EngineStatus& engine,
                         const std::vector<NamedHttpCounters>& http) {
  Families out;
  add_requests(out, metrics);
  add_times(out, metrics);
  add_engine(out, engine);
  for (const NamedHttpCounters& named : http) add_http(out, named);
  return out.text();
}

}  // namespace tandem::serve
