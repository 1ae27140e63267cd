// SPDX-License-Identifier: Apache-2.0
// What the API layer costs by itself, without sockets and without a model: reading a request,
// formatting a chunk, and the whole way from a body to an answer with the stand-in engine. All on
// one thread. The peer is nlohmann/json doing the same formatting or parsing in the same run.
#include <fmt/format.h>

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/report.h"
#include "serve/fake_engine.h"
#include "serve/gate.h"
#include "serve/openai_answer.h"
#include "serve/service.h"
#include "serve/service_test_rig.h"

namespace tandem::serve {
namespace {

using bench::Report;
using bench::Row;
using nlohmann::json;

constexpr std::string_view kPieces[] = {" the", " quick", " \"brown\"",
                                        "\n",   " fox",   "\xe4\xb8\x96"};

AnswerHead head() {
  return {.endpoint = Endpoint::kChat,
          .id = "chatcmpl-0123456789abcdef",
          .created = 1700000000,
          .model = "tandem-small",
          .fingerprint = "fp_0123456789"};
}

std::string peer_chunk(std::string_view piece) {
  const json chunk = {{"id", "chatcmpl-0123456789abcdef"},
                      {"object", "chat.completion.chunk"},
                      {"created", 1700000000},
                      {"model", "tandem-small"},
                      {"system_fingerprint", "fp_0123456789"},
                      {"choices",
                       {{{"index", 0},
                         {"delta", {{"content", piece}}},
                         {"logprobs", nullptr},
                         {"finish_reason", nullptr}}}}};
  return "data: " + chunk.dump(-1, ' ', false, json::error_handler_t::replace) + "\n\n";
}

void bench_chunks(Report& report) {
  if (!report.wants("openai/chunk", "chat delta")) return;
  constexpr int kCount = 20000;
  const ChunkWriter writer(head());
  std::string out;
  const auto ours = bench::measure([&] {
    for (int i = 0; i < kCount; ++i) {
      out.clear();
      writer.text(out, 0, kPieces[i % std::size(kPieces)], {});
      bench::keep(out.data());
    }
  });
  const auto peer = bench::measure([&] {
    for (int i = 0; i < kCount; ++i) {
      const std::string bytes = peer_chunk(kPieces[i % std::size(kPieces)]);
      bench::keep(bytes.data());
    }
  });
  Row row = Row::rate("openai/chunk", "chat delta", kCount, "chunk/s", ours);
  row.peer = "nlohmann dump";
  row.peer_value = kCount / peer.median_s;
  report.add(std::move(row));
}

std::string chat_body(size_t content_bytes, bool stream) {
  const json body = {{"model", "tiny"},
                     {"messages",
                      {{{"role", "system"}, {"content", "You are a helpful assistant."}},
                       {{"role", "user"}, {"content", std::string(content_bytes, 'x')}}}},
                     {"temperature", 0.7},
                     {"top_p", 0.9},
                     {"max_tokens", 64},
                     {"seed", 1},
                     {"stream", stream}};
  return body.dump();
}

void bench_gate(Report& report) {
  const GateContext context{.model_name = "tiny",
                            .vocab_size = 151936,
                            .tokenizer_vocab_size = 151669,
                            .context_tokens_max = 40960,
                            .kv_tokens_max = 40960};
  for (const size_t bytes : {size_t{200}, size_t{20000}}) {
    const std::string name = fmt::format("chat, {} B of text", bytes);
    if (!report.wants("openai/parse+gate", name)) continue;
    constexpr int kCount = 2000;
    const std::string body = chat_body(bytes, true);
    const auto ours = bench::measure([&] {
      for (int i = 0; i < kCount; ++i) {
        simdjson::dom::parser parser;
        const auto root = parse_json(parser, body, context.limits.json);
        const auto request = read_chat_request(*root, context);
        CHECK(request.ok());
        bench::keep(&request);
      }
    });
    const auto peer = bench::measure([&] {
      for (int i = 0; i < kCount; ++i) {
        const json parsed = json::parse(body);
        bench::keep(&parsed);
      }
    });
    Row row = Row::rate("openai/parse+gate", name, kCount, "req/s", ours);
    row.peer = "nlohmann parse alone";
    row.peer_value = kCount / peer.median_s;
    report.add(std::move(row));
  }
}

RigOptions rig_options() {
  RigOptions options;
  options.service.preparing_max = 1024;
  options.context_tokens_max = 4096;
  options.queue_requests_max = 1024;
  options.chat_template = false;
  return options;
}

// Body -> gate -> tokens -> engine -> text -> bytes, and the time of the stand-in in it.
void bench_requests(Report& report) {
  if (!report.wants("openai/whole request", "completion, 16 tokens")) return;
  constexpr int kCount = 256;
  ServiceRig rig(rig_options());
  const std::string body = R"({"model":"tiny","prompt":"The quick brown fox","max_tokens":16})";
  const auto timing = bench::measure([&] {
    std::vector<Call> calls;
    for (int i = 0; i < kCount; ++i) calls.push_back(rig.send("POST", kCompletions, body));
    rig.run();
    CHECK(calls.back()->status == 200, "{}", calls.back()->body);
  });
  Row row = Row::rate("openai/whole request", "completion, 16 tokens", kCount, "req/s", timing);
  row.limit = 4000;
  report.add(std::move(row));
}

void bench_streams(Report& report) {
  if (!report.wants("openai/streamed tokens", "256 streams")) return;
  constexpr int kStreams = 256;
  constexpr int kTokens = 200;
  ServiceRig rig(rig_options());
  const std::string body = fmt::format(
      R"({{"model":"tiny","prompt":"The quick brown fox","max_tokens":{},"stream":true}})",
      kTokens);
  // The rig takes turns, so that every token is a chunk of its own: the costliest case.
  const auto timing = bench::measure([&] {
    std::vector<Call> calls;
    for (int i = 0; i < kStreams; ++i) calls.push_back(rig.send("POST", kCompletions, body));
    rig.run();
    CHECK(calls.back()->done());
  });
  Row row = Row::rate("openai/streamed tokens", "256 streams, a chunk each", kStreams * kTokens,
                      "token/s", timing);
  row.limit = 300000;
  report.add(std::move(row));
}

}  // namespace
}  // namespace tandem::serve

int main(int argc, char** argv) {
  using namespace tandem::serve;
  tandem::bench::Report report(argc, argv, "OpenAI layer, one thread, no sockets, no model");
  bench_chunks(report);
  bench_gate(report);
  bench_requests(report);
  bench_streams(report);
  report.note("limit: the aim for the whole server on two cores (4,000 req/s, 300,000 token/s)");
  return report.finish();
}
