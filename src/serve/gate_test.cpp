// SPDX-License-Identifier: Apache-2.0
// What the gate makes of good requests, and the JSON reader and writer under it. Bad requests are
// in service_limits_test.cpp, through the handlers.
#include "serve/gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "serve/json_writer.h"

namespace tandem::serve {
namespace {

using nlohmann::json;

GateContext context() {
  GateContext out{.model_name = "m",
                  .vocab_size = 100,
                  .tokenizer_vocab_size = 90,
                  .context_tokens_max = 1000,
                  .kv_tokens_max = 800};
  out.sampling_defaults = {.temperature = 0.6F, .top_k = 20, .top_p = 0.95F};
  return out;
}

Result<GenerationRequest> read(const json& body, bool chat) {
  simdjson::dom::parser parser;
  const JsonValue root = TRY(parse_json(parser, body.dump(), {}));
  return chat ? read_chat_request(root, context()) : read_completion_request(root, context());
}

json hello(const json& fields = json::object()) {
  json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}};
  if (!fields.is_null()) body.update(fields);
  return body;
}

TEST(Gate, DefaultsComeFromTheServersSettings) {
  const auto request = read(hello(), true);
  ASSERT_TRUE(request) << request.error().text;
  EXPECT_EQ(request->sampling.temperature, 0.6F);
  EXPECT_EQ(request->sampling.top_k, 20);
  EXPECT_EQ(request->sampling.top_p, 0.95F);
  EXPECT_EQ(request->sampling.logprobs, -1);
  EXPECT_EQ(request->n, 1);
  EXPECT_FALSE(request->max_tokens);
  EXPECT_FALSE(request->has_seed);
  EXPECT_EQ(read({{"prompt", "x"}}, false)->max_tokens, 16);
}

TEST(Gate, EverySamplingFieldArrives) {
  const auto request = read(hello({{"temperature", 0.25},
                                   {"top_k", 7},
                                   {"top_p", 0.5},
                                   {"min_p", 0.125},
                                   {"presence_penalty", -1},
                                   {"frequency_penalty", 1.5},
                                   {"repetition_penalty", 1.25},
                                   {"seed", -1},
                                   {"logit_bias", {{"99", 5}, {"3", -100}}},
                                   {"stop", {"a", "b"}},
                                   {"stop_token_ids", {1, 99}},
                                   {"min_tokens", 2},
                                   {"max_tokens", 9},
                                   {"logprobs", true},
                                   {"top_logprobs", 4},
                                   {"n", 2}}),
                            true);
  ASSERT_TRUE(request) << request.error().text;
  const SamplingParams& s = request->sampling;
  EXPECT_EQ(s.temperature, 0.25F);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.top_p, 0.5F);
  EXPECT_EQ(s.min_p, 0.125F);
  EXPECT_EQ(s.presence_penalty, -1.0F);
  EXPECT_EQ(s.frequency_penalty, 1.5F);
  EXPECT_EQ(s.repetition_penalty, 1.25F);
  EXPECT_EQ(s.seed, 0xffffffffffffffffU);
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<int32_t, float>>{{3, -100.0F}, {99, 5.0F}}));
  EXPECT_EQ(s.logprobs, 4);
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_EQ(request->stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request->stop_token_ids, (std::vector<int32_t>{1, 99}));
  EXPECT_EQ(request->max_tokens, 9);
  EXPECT_EQ(request->n, 2);
}

TEST(Gate, TopKThatKeepsEverythingIsOffAndTinyTemperaturesAreGreedy) {
  EXPECT_EQ(read(hello({{"top_k", -1}}), true)->sampling.top_k, 0);
  EXPECT_EQ(read(hello({{"top_k", 90}}), true)->sampling.top_k, 0);
  EXPECT_EQ(read(hello({{"top_k", 89}}), true)->sampling.top_k, 89);
  EXPECT_EQ(read(hello({{"temperature", 1e-38}}), true)->sampling.temperature, 0.0F);
  EXPECT_FALSE(std::signbit(read(hello({{"temperature", -0.0}}), true)->sampling.temperature));
}

TEST(Gate, EveryFormOfAPromptIsRead) {
  EXPECT_EQ(std::get<std::string>(read({{"prompt", "a"}}, false)->prompts.at(0)), "a");
  const auto texts = read({{"prompt", {"a", "b"}}}, false);
  EXPECT_EQ(std::get<std::string>(texts->prompts.at(1)), "b");
  const auto ids = read({{"prompt", {0, 99}}}, false);
  ASSERT_EQ(ids->prompts.size(), 1U);
  EXPECT_EQ(std::get<std::vector<int32_t>>(ids->prompts[0]), (std::vector<int32_t>{0, 99}));
  const auto lists = read({{"prompt", {{1}, {2, 3}}}}, false);
  EXPECT_EQ(std::get<std::vector<int32_t>>(lists->prompts.at(1)), (std::vector<int32_t>{2, 3}));
}

TEST(Gate, TheTemplateGetsPlainMessages) {
  const json messages = {
      {{"role", "developer"}, {"content", "be \"brief\"\n"}},
      {{"role", "user"},
       {"name", "ann"},
       {"content", {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}}}},
      {{"role", "assistant"},
       {"content", nullptr},
       {"reasoning_content", "hm"},
       {"tool_calls",
        {{{"id", "c1"},
          {"type", "function"},
          {"function", {{"name", "f"}, {"arguments", "{\"x\": 1}"}}}}}}},
      {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "7"}}};
  const json tools = {
      {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}}}}};
  const auto request = read({{"messages", messages},
                             {"tools", tools},
                             {"chat_template_kwargs", {{"enable_thinking", false}}}},
                            true);
  ASSERT_TRUE(request) << request.error().text << request.error().param;
  const json seen = json::parse(request->template_context);
  EXPECT_EQ(seen["messages"][0], (json{{"role", "system"}, {"content", "be \"brief\"\n"}}));
  EXPECT_EQ(seen["messages"][1], (json{{"role", "user"}, {"name", "ann"}, {"content", "ab"}}));
  EXPECT_EQ(seen["messages"][2]["content"], "");
  EXPECT_EQ(seen["messages"][2]["reasoning_content"], "hm");
  EXPECT_EQ(seen["messages"][2]["tool_calls"], messages[2]["tool_calls"]);
  EXPECT_EQ(seen["messages"][3], messages[3]);
  EXPECT_EQ(seen["tools"], tools);
  EXPECT_EQ(seen["add_generation_prompt"], true);
  EXPECT_EQ(seen["enable_thinking"], false);
}

TEST(Gate, ToolChoiceNoneHidesTheToolsFromTheTemplate) {
  const json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const auto request = read(hello({{"tools", tools}, {"tool_choice", "none"}}), true);
  EXPECT_FALSE(json::parse(request->template_context).contains("tools"));
}

TEST(Gate, OutputIsWhatContextAndCacheLeave) {
  GenerationRequest request;
  const GateContext limits = context();
  EXPECT_EQ(*output_tokens(request, limits, 300, 1), 500);
  request.max_tokens = 20;
  EXPECT_EQ(*output_tokens(request, limits, 300, 1), 20);
  EXPECT_EQ(*output_tokens(request, limits, 799, 1), 1);
  EXPECT_EQ(output_tokens(request, limits, 800, 1).error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(output_tokens(request, limits, 0, 1).error().code, ErrorCode::kInvalidArgument);
  request.max_tokens = 0;  // scoring needs no room behind the prompt
  EXPECT_EQ(*output_tokens(request, limits, 800, 1), 0);
  EXPECT_FALSE(output_tokens(request, limits, 801, 1));
}

TEST(Gate, TheWholeBudgetOfARequestIsBounded) {
  GenerationRequest request;
  GateContext limits = context();
  limits.limits.output_tokens_max = 1000;
  request.n = 2;
  request.max_tokens = 500;
  EXPECT_TRUE(output_tokens(request, limits, 10, 1));
  EXPECT_EQ(output_tokens(request, limits, 10, 2).error().param, "max_tokens");
  limits.limits.prompt_logprob_entries_max = 100;
  request.max_tokens = 1;
  request.echo = true;
  request.sampling.logprobs = 4;
  EXPECT_TRUE(output_tokens(request, limits, 10, 1));
  EXPECT_EQ(output_tokens(request, limits, 11, 1).error().param, "logprobs");
}

TEST(Json, DepthIsCountedExactly) {
  for (const size_t depth : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{100}}) {
    simdjson::dom::parser parser;
    const std::string body = std::string(depth, '[') + std::string(depth, ']');
    EXPECT_EQ(parse_json(parser, body, {}).ok(), depth <= 64) << depth;
  }
}

TEST(Json, DuplicatesAreFoundAmongManyKeys) {
  json many = json::object();
  for (int i = 0; i < 1000; ++i) many["k" + std::to_string(i)] = i;
  std::string body = many.dump();
  simdjson::dom::parser parser;
  EXPECT_TRUE(parse_json(parser, body, {}));
  body.insert(body.size() - 1, R"(,"k500":1)");
  EXPECT_EQ(parse_json(parser, body, {}).error().param, "k500");
}

TEST(Json, WrittenStringsAreReadBackByAnotherParser) {
  std::string text;
  for (int c = 0; c < 128; ++c) text.push_back(static_cast<char>(c));
  text += "\xc3\xa4 \xe4\xb8\x96 \xf0\x9f\x99\x82";
  std::string out;
  append_json_string(out, text);
  EXPECT_EQ(json::parse(out).get<std::string>(), text);
}

}  // namespace
}  // namespace tandem::serve
