// SPDX-License-Identifier: Apache-2.0
#include "serve/service_test_rig.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/json_writer.h"

namespace tandem::serve {
namespace {

using nlohmann::json;

// GPT-2's visible letter for each byte, as UTF-8.
std::string visible(int byte) {
  static const std::vector<int> code_points = [] {
    std::vector<int> table(256);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      table[static_cast<size_t>(b)] = shown ? b : next++;
    }
    return table;
  }();
  const int c = code_points[static_cast<size_t>(byte)];
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3f))};
}

// One token per byte (id = byte), no merges, and three special tokens.
std::string tiny_tokenizer_json() {
  json vocab = json::object();
  for (int b = 0; b < 256; ++b) vocab[visible(b)] = b;
  json added = json::array();
  int id = 256;
  for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    added.push_back({{"id", id++},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  const char* pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
      R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
      {"post_processor", byte_level},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", ""},
        {"end_of_word_suffix", ""},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", json::array()}}}};
  return file.dump();
}

// A user called "nobody" is refused, so that a template's own complaint can be tested.
constexpr const char* kTemplate =
    "{%- for m in messages %}"
    "{%- if m.name == 'nobody' %}{{ raise_exception('nobody may not speak') }}{% endif %}"
    "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think></think>' }}"
    "{%- endif %}";

ServiceOptions with_eos(ServiceOptions options) {
  if (options.eos_ids.empty()) options.eos_ids = {ServiceRig::kTurnEnd};
  options.seed = 7;
  options.fingerprint = "fp_test";
  options.unix_seconds = [] { return int64_t{1700000000}; };
  return options;
}

}  // namespace

std::string Recorded::param() const {
  const json error = json::parse(body).at("error");
  return error.at("param").is_null() ? "" : error.at("param").get<std::string>();
}

std::vector<json> Recorded::events() const {
  std::vector<json> out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    const std::string_view line = std::string_view(body).substr(at, end - at);
    CHECK(line.starts_with("data: ") && end != std::string::npos, "not an event: {}", line);
    if (line != "data: [DONE]") out.push_back(json::parse(line.substr(6)));
    at = end + 2;
  }
  return out;
}

bool Recorded::done() const {
  return std::string_view(body).ends_with("data: [DONE]\n\n");
}

std::string Recorded::text(int choice) const {
  if (!streamed) {
    const json one = this->parsed().at("choices").at(static_cast<size_t>(choice));
    return one.contains("message") ? one["message"]["content"] : one["text"];
  }
  std::string out;
  for (const auto& event : events()) {
    if (!event.contains("choices")) continue;
    for (const auto& one : event["choices"]) {
      if (one["index"] != choice) continue;
      out += one.contains("delta") ? one["delta"].value("content", "") : one.value("text", "");
    }
  }
  return out;
}

std::string Recorded::finish_reason(int choice) const {
  const auto all = streamed ? events() : std::vector<nlohmann::json>{this->parsed()};
  std::string reason;
  for (const auto& event : all) {
    for (const auto& one : event.at("choices")) {
      if (one["index"] == choice && !one["finish_reason"].is_null()) reason = one["finish_reason"];
    }
  }
  return reason;
}

void Call::client_gone() const {
  if (const auto alive = exchange.lock()) alive->client_gone();
}

ServiceRig::ServiceRig(RigOptions options)
    : tokenizer_(std::move(text::Tokenizer::parse(tiny_tokenizer_json(), "tiny")).value()),
      link_(options.link_submits_max),
      engine_runs_(options.engine_runs) {
  if (options.chat_template) {
    template_ = text::ChatTemplate::from_text(kTemplate, tokenizer_.special_strings(), {}).value();
  }
  if (options.engine.tokens.empty()) options.engine.tokens = ids("Hello, world. ");
  engine_ = std::make_unique<FakeEngine>(std::move(options.engine), link_);
  const Executors executors{
      .try_post_work =
          [this, full = options.work_queue_full](std::function<void()> work) {
            if (!full) io_.push_back(std::move(work));
            return !full;
          },
      .post_io = [this](std::function<void()> work) { io_.push_back(std::move(work)); }};
  const engine::EngineInfo info{.model_name = "tiny",
                                .vocab_size = kVocab,
                                .tokenizer_vocab_size = tokenizer_.vocab_size(),
                                .context_tokens_max = options.context_tokens_max,
                                .kv_tokens_max = options.kv_tokens_max,
                                .queue_requests_max = options.queue_requests_max};
  service_ = std::make_unique<Service>(with_eos(std::move(options.service)), info, tokenizer_,
                                       template_ ? &*template_ : nullptr, link_, executors, clock_);
  routes_ = service_->routes();
  for (Route& route : service_->admin_routes()) routes_.push_back(std::move(route));
}

Call ServiceRig::send(std::string_view method, std::string_view path, std::string body,
                      std::string content_type, uint64_t tenant) {
  auto answer = std::make_shared<Recorded>();
  const ExchangeSink sink{
      .reply =
          [answer](int status, std::string type, std::string bytes, auto headers) {
            answer->status = status;
            answer->type = std::move(type);
            answer->body = std::move(bytes);
            answer->headers = std::move(headers);
            answer->ended = true;
          },
      .begin_stream =
          [answer](std::string type) {
            answer->status = 200;
            answer->type = std::move(type);
            answer->streamed = true;
          },
      .send =
          [answer](std::string bytes) {
            answer->body += bytes;
            ++answer->sends;
          },
      .end = [answer] { answer->ended = true; },
      .unsent_bytes = [answer] { return answer->unsent_bytes; },
      .abort = [answer] { answer->cut = true; }};
  auto exchange =
      std::make_shared<Exchange>(HttpRequest{.method = std::string(method),
                                             .path = std::string(path),
                                             .content_type = std::move(content_type),
                                             .body = std::move(body),
                                             .request_id = fmt::format("req-{}", next_request_++),
                                             .tenant = tenant,
                                             .received = clock_.now()},
                                 sink);
  const auto route = std::find_if(routes_.begin(), routes_.end(), [&](const Route& r) {
    return r.method == method && r.path == path;
  });
  CHECK(route != routes_.end(), "no route {} {}", method, path);
  route->handler(exchange);
  return {exchange, answer};
}

Call ServiceRig::post_raw(std::string_view path, std::string body) {
  Call call = send("POST", path, std::move(body));
  run();
  return call;
}

Call ServiceRig::post(std::string_view path, const json& body) {
  return post_raw(path, body.dump());
}

Call ServiceRig::get(std::string_view path) {
  return send("GET", path, "", "");
}

void ServiceRig::run_io() {
  while (!io_.empty()) {
    auto work = std::move(io_.front());
    io_.pop_front();
    work();
  }
}

bool ServiceRig::step_engine() {
  return engine_->step(clock_.now());
}

void ServiceRig::run() {
  run_io();
  if (!engine_runs_) return;
  bool more = true;
  while (more) {
    more = step_engine();
    run_io();
  }
}

std::vector<int32_t> ServiceRig::ids(std::string_view bytes) {
  std::vector<int32_t> out;
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

bool ServiceRig::still_serves() {
  const Call call = post(kCompletions, {{"model", "tiny"}, {"prompt", "x"}, {"max_tokens", 5}});
  return call->status == 200 && call->text() == "Hello";
}

}  // namespace tandem::serve
