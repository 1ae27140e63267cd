// SPDX-License-Identifier: Apache-2.0
// Every kind of bad body, through the handlers: the status, the field that the error names, and
// that the next request is served.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "serve/service_test_rig.h"

namespace tandem::serve {
namespace {

using nlohmann::json;

struct Case {
  std::string name;
  std::string_view path;
  std::string body;
  int status;
  std::string param;
};

std::string chat(const json& fields) {
  json body = {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}};
  if (!fields.is_null()) body.update(fields);
  return body.dump();
}

std::string completion(const json& fields) {
  json body = {{"model", "tiny"}, {"prompt", "hi"}, {"max_tokens", 4}};
  if (!fields.is_null()) body.update(fields);
  return body.dump();
}

// A chat body with a literal that a JSON library would not write.
std::string literal(const std::string& field, const std::string& value) {
  return R"({"model":"tiny","messages":[{"role":"user","content":"hi"}],")" + field +
         "\":" + value + "}";
}

std::string content(const std::string& bytes) {
  return R"({"messages":[{"role":"user","content":")" + bytes + R"("}]})";
}

std::string nested(size_t depth) {
  return literal("metadata", std::string(depth, '[') + std::string(depth, ']'));
}

json message(const json& fields) {
  json one = {{"role", "user"}, {"content", "hi"}};
  if (!fields.is_null()) one.update(fields);
  return {{"messages", {one}}};
}

json many(size_t count, const json& value) {
  return json(std::vector<json>(count, value));
}

json biases(int count) {
  json out = json::object();
  for (int i = 0; i < count; ++i) out[std::to_string(i)] = 0;
  return out;
}

json tool(const std::string& name) {
  return {{"type", "function"}, {"function", {{"name", name}, {"parameters", json::object()}}}};
}

std::vector<Case> json_cases() {
  return {
      {"J1 nested 65", kChat, nested(65), 400, ""},
      {"J1 nested a million", kChat, nested(1000000), 400, ""},
      {"J1 unclosed million", kChat, std::string(1000000, '['), 400, ""},
      {"J2 n twice", kChat, R"({"n":1,"n":2})", 400, "n"},
      {"J2 escaped twice", kChat, R"({"n":1,"\u006e":2})", 400, "n"},
      {"J2 in a message", kChat, R"({"messages":[{"role":"user","role":"system"}]})", 400,
       "messages[0].role"},
      {"J2 deep", kChat, literal("tools", R"([{"a":{"b":1,"b":2}}])"), 400, "tools[0].a.b"},
      {"J3 over 2^32", kChat, literal("n", "4294967297"), 400, "n"},
      {"J3 over 2^63", kChat, literal("n", "9223372036854775808"), 400, "n"},
      {"J3 1e999", kChat, literal("n", "1e999"), 400, "n"},
      {"J3 -5", kChat, literal("n", "-5"), 400, "n"},
      {"J3 -0", kChat, literal("n", "-0"), 400, "n"},
      {"J3 1.9", kChat, literal("n", "1.9"), 400, "n"},
      {"J3 1.0", kChat, literal("n", "1.0"), 400, "n"},
      {"J3 true", kChat, literal("n", "true"), 400, "n"},
      {"J3 string", kChat, literal("n", "\"3\""), 400, "n"},
      {"J3 10^4 digits", kChat, literal("n", std::string(10000, '1')), 400, "n"},
      {"J3 NaN", kChat, literal("temperature", "NaN"), 400, ""},
      {"J3 +1", kChat, literal("n", "+1"), 400, ""},
      {"J4 invalid", kChat, content("\xff\xfe"), 400, ""},
      {"J4 overlong", kChat, content("\xc0\xaf"), 400, ""},
      {"J4 lone surrogate", kChat, content("\\ud800"), 400, ""},
      {"J4 swapped surrogates", kChat, content("\\udc00\\ud800"), 400, ""},
      {"J4 raw NUL", kChat, content(std::string("\0", 1)), 400, ""},
      {"J4 byte order mark", kChat, "\xef\xbb\xbf" + content("hi"), 400, ""},
      {"J4 1 MB key", kChat, literal(std::string(1000000, 'k'), "1"), 400, ""},
      {"J5 messages absent", kChat, "{}", 400, "messages"},
      {"J5 messages null", kChat, R"({"messages":null})", 400, "messages"},
      {"J5 no messages", kChat, R"({"messages":[]})", 400, "messages"},
      {"J5 messages a string", kChat, R"({"messages":"hi"})", 400, "messages"},
      {"J5 message a string", kChat, R"({"messages":["hi"]})", 400, "messages[0]"},
      {"J5 100,000 messages", kChat,
       chat({{"messages", many(100000, {{"role", "user"}, {"content", "x"}})}}), 400, "messages"},
      {"J5 role unknown", kChat, chat(message({{"role", "wizard"}})), 400, "messages[0].role"},
      {"J5 role a number", kChat, chat(message({{"role", 3}})), 400, "messages[0].role"},
      {"J5 content a number", kChat, chat(message({{"content", 7}})), 400, "messages[0].content"},
      {"J5 content null", kChat, chat(message({{"content", nullptr}})), 400, "messages[0].content"},
      {"J5 part a string", kChat, chat(message({{"content", {"hi"}}})), 400,
       "messages[0].content[0]"},
      {"J5 part without text", kChat, chat(message({{"content", {{{"type", "text"}}}}})), 400,
       "messages[0].content[0].text"},
      {"J5 mixed parts", kChat,
       chat(message({{"content", {{{"type", "text"}, {"text", "a"}}, {{"type", "video"}}}}})), 400,
       "messages[0].content[1].type"},
      {"J5 name of 1 MB", kChat, chat(message({{"name", std::string(1000000, 'a')}})), 400,
       "messages[0].name"},
      {"J5 name with a newline", kChat, chat(message({{"name", "a\nb"}})), 400, "messages[0].name"},
      {"J6 trailing text", kChat, chat({}) + "x", 400, ""},
      {"J6 two documents", kChat, chat({}) + chat({}), 400, ""},
      {"J6 empty", kChat, "", 400, ""},
      {"J6 a list", kChat, "[]", 400, ""},
      {"J6 a number", kChat, "7", 400, ""},
      {"C6 image", kChat,
       chat(message({{"content",
                      {{{"type", "image_url"}, {"image_url", {{"url", "http://127.0.0.1/"}}}}}}})),
       400, "messages[0].content[0].type"},
      {"C6 file", kChat,
       chat(message({{"content", {{{"type", "file"}, {"file", {{"url", "file:///etc"}}}}}}})), 400,
       "messages[0].content[0].type"},
  };
}

std::vector<Case> number_cases() {
  return {
      {"S1 n 0", kChat, chat({{"n", 0}}), 400, "n"},
      {"S1 n 129", kChat, chat({{"n", 129}}), 400, "n"},
      {"S1 n 1e9", kChat, chat({{"n", 1000000000}}), 400, "n"},
      {"S1 best_of", kCompletions, completion({{"best_of", 5}}), 400, "best_of"},
      {"S1 best_of -1", kCompletions, completion({{"best_of", -1}}), 400, "best_of"},
      {"S1 n x prompts", kCompletions, completion({{"n", 65}, {"prompt", {"a", "b"}}}), 400, "n"},
      {"S2 max_tokens 0", kChat, chat({{"max_tokens", 0}}), 400, "max_tokens"},
      {"S2 0 without echo", kCompletions, completion({{"max_tokens", 0}}), 400, "max_tokens"},
      {"S2 max_tokens -1", kChat, chat({{"max_tokens", -1}}), 400, "max_tokens"},
      {"S2 max_tokens 2^31", kChat, chat({{"max_tokens", 2147483648}}), 400, "max_tokens"},
      {"S2 max_tokens 2^63", kChat, literal("max_tokens", "9223372036854775808"), 400,
       "max_tokens"},
      {"S2 newer 0", kChat, chat({{"max_completion_tokens", 0}}), 400, "max_completion_tokens"},
      {"S2 they differ", kChat, chat({{"max_tokens", 3}, {"max_completion_tokens", 4}}), 400,
       "max_tokens"},
      {"S3 over the context", kCompletions, completion({{"prompt", std::string(512, 'a')}}), 400,
       "prompt"},
      {"S3 chat over the context", kChat, chat(message({{"content", std::string(512, 'a')}})), 400,
       "messages"},
      {"S3 megabytes over it", kCompletions, completion({{"prompt", std::string(4000000, 'a')}}),
       400, "prompt"},
      {"S4 logprobs -1", kCompletions, completion({{"logprobs", -1}}), 400, "logprobs"},
      {"S4 logprobs 21", kCompletions, completion({{"logprobs", 21}}), 400, "logprobs"},
      {"S4 logprobs true", kCompletions, completion({{"logprobs", true}}), 400, "logprobs"},
      {"S4 chat logprobs 3", kChat, chat({{"logprobs", 3}}), 400, "logprobs"},
      {"S4 top_logprobs 21", kChat, chat({{"logprobs", true}, {"top_logprobs", 21}}), 400,
       "top_logprobs"},
      {"S4 top_logprobs alone", kChat, chat({{"top_logprobs", 2}}), 400, "top_logprobs"},
      {"S4 prompt_logprobs", kCompletions, completion({{"prompt_logprobs", 1}}), 400,
       "prompt_logprobs"},
      {"S5 temperature -1", kChat, chat({{"temperature", -1}}), 400, "temperature"},
      {"S5 temperature 2.01", kChat, chat({{"temperature", 2.01}}), 400, "temperature"},
      {"S5 temperature 1e38", kChat, chat({{"temperature", 1e38}}), 400, "temperature"},
      {"S5 temperature string", kChat, chat({{"temperature", "1"}}), 400, "temperature"},
      {"S5 top_p 0", kChat, chat({{"top_p", 0}}), 400, "top_p"},
      {"S5 top_p -0", kChat, literal("top_p", "-0.0"), 400, "top_p"},
      {"S5 top_p over 1", kChat, chat({{"top_p", 1.0000001}}), 400, "top_p"},
      {"S5 top_k -2", kChat, chat({{"top_k", -2}}), 400, "top_k"},
      {"S5 top_k 2^31", kChat, chat({{"top_k", 2147483648}}), 400, "top_k"},
      {"S5 min_p -0.1", kChat, chat({{"min_p", -0.1}}), 400, "min_p"},
      {"S5 min_p 1.1", kChat, chat({{"min_p", 1.1}}), 400, "min_p"},
      {"S5 presence", kChat, chat({{"presence_penalty", 2.1}}), 400, "presence_penalty"},
      {"S5 frequency", kChat, chat({{"frequency_penalty", -2.1}}), 400, "frequency_penalty"},
      {"S5 repetition 0", kChat, chat({{"repetition_penalty", 0}}), 400, "repetition_penalty"},
      {"S5 repetition inf", kChat, literal("repetition_penalty", "1e400"), 400,
       "repetition_penalty"},
      {"S5 seed 2^64", kChat, literal("seed", "18446744073709551616"), 400, "seed"},
      {"S5 seed 1.5", kChat, chat({{"seed", 1.5}}), 400, "seed"},
  };
}

std::vector<Case> token_and_name_cases() {
  return {
      {"S6 id -1", kChat, chat({{"logit_bias", {{"-1", 1}}}}), 400, "logit_bias"},
      {"S6 id of the vocabulary's size", kChat, chat({{"logit_bias", {{"300", 1}}}}), 400,
       "logit_bias"},
      {"S6 id 2^32", kChat, chat({{"logit_bias", {{"4294967296", 1}}}}), 400, "logit_bias"},
      {"S6 id 01", kChat, chat({{"logit_bias", {{"01", 1}}}}), 400, "logit_bias"},
      {"S6 id +1", kChat, chat({{"logit_bias", {{"+1", 1}}}}), 400, "logit_bias"},
      {"S6 id of a word", kChat, chat({{"logit_bias", {{"abc", 1}}}}), 400, "logit_bias"},
      {"S6 id empty", kChat, chat({{"logit_bias", {{"", 1}}}}), 400, "logit_bias"},
      {"S6 300,000 ids", kChat, chat({{"logit_bias", biases(300000)}}), 400, "logit_bias"},
      {"S6 1e30", kChat, chat({{"logit_bias", {{"1", 1e30}}}}), 400, "logit_bias.1"},
      {"S6 a list", kChat, chat({{"logit_bias", {1, 2}}}), 400, "logit_bias"},
      {"S7 stop id", kChat, chat({{"stop_token_ids", {300}}}), 400, "stop_token_ids[0]"},
      {"S7 stop id -1", kChat, chat({{"stop_token_ids", {1, -1}}}), 400, "stop_token_ids[1]"},
      {"S7 allowed ids", kChat, chat({{"allowed_token_ids", {1}}}), 400, "allowed_token_ids"},
      {"S7 bad words", kChat, chat({{"bad_words", {"x"}}}), 400, "bad_words"},
      {"S7 logprob ids", kChat, chat({{"logprob_token_ids", {1}}}), 400, "logprob_token_ids"},
      {"S7 prompt id", kCompletions, completion({{"prompt", {1, 300}}}), 400, "prompt[1]"},
      {"S7 prompt id -1", kCompletions, completion({{"prompt", {-1}}}), 400, "prompt[0]"},
      {"S7 prompt id 2^40", kCompletions, completion({{"prompt", {1099511627776}}}), 400,
       "prompt[0]"},
      {"S7 id in a list of lists", kCompletions, completion({{"prompt", {{1}, {300}}}}), 400,
       "prompt[1][0]"},
      {"S7 mixed prompt", kCompletions, completion({{"prompt", {1, "a"}}}), 400, "prompt[1]"},
      {"S7 no ids", kCompletions, completion({{"prompt", json::array()}}), 400, "prompt"},
      {"S7 empty text", kCompletions, completion({{"prompt", ""}}), 400, "prompt"},
      {"S7 no prompt", kCompletions, R"({"model":"tiny"})", 400, "prompt"},
      {"S7 129 prompts", kCompletions, completion({{"prompt", many(129, "a")}}), 400, "prompt"},
      {"S8 empty", kChat, chat({{"stop", ""}}), 400, "stop"},
      {"S8 empty in a list", kChat, chat({{"stop", {"a", ""}}}), 400, "stop[1]"},
      {"S8 17", kChat, chat({{"stop", many(17, "x")}}), 400, "stop"},
      {"S8 257 bytes", kChat, chat({{"stop", std::string(257, 'x')}}), 400, "stop"},
      {"S8 a number", kChat, chat({{"stop", 7}}), 400, "stop"},
      {"S8 invalid UTF-8", kChat, literal("stop", "\"\xff\""), 400, ""},
      {"S9 min over max", kChat, chat({{"min_tokens", 5}, {"max_tokens", 4}}), 400, "min_tokens"},
      {"S9 min over the room", kChat, chat({{"min_tokens", 600}}), 400, "min_tokens"},
      {"S9 ignore_eos alone", kChat, chat({{"ignore_eos", true}}), 400, "ignore_eos"},
      {"S10 a path", kChat, chat({{"model", "../../etc/passwd"}}), 404, "model"},
      {"S10 1 MB", kChat, chat({{"model", std::string(1000000, 'm')}}), 404, "model"},
      {"S10 a number", kChat, chat({{"model", 7}}), 400, "model"},
      {"S10 user", kChat, chat({{"user", std::string(1000, 'u')}}), 400, "user"},
      {"S10 metadata", kChat, chat({{"metadata", {{"a", 1}}}}), 400, "metadata"},
      {"S10 store", kChat, chat({{"store", "yes"}}), 400, "store"},
      {"S11 prompt_embeds", kCompletions, completion({{"prompt_embeds", "AAAA"}}), 400,
       "prompt_embeds"},
      {"S12 options alone", kChat, chat({{"stream_options", {{"include_usage", true}}}}), 400,
       "stream_options"},
      {"S12 options a list", kChat, chat({{"stream", true}, {"stream_options", {1}}}), 400,
       "stream_options"},
      {"S12 usage a string", kChat,
       chat({{"stream", true}, {"stream_options", {{"include_usage", "x"}}}}), 400,
       "stream_options.include_usage"},
      {"S12 stream a string", kChat, chat({{"stream", "yes"}}), 400, "stream"},
  };
}

std::vector<Case> feature_cases() {
  return {
      {"T4 template", kChat, chat({{"chat_template", "{{ 7 }}"}}), 400, "chat_template"},
      {"T4 tokenize", kChat, chat({{"chat_template_kwargs", {{"tokenize", true}}}}), 400,
       "chat_template_kwargs"},
      {"T4 messages", kChat, chat({{"chat_template_kwargs", {{"messages", json::array()}}}}), 400,
       "chat_template_kwargs"},
      {"T4 a list", kChat, chat({{"chat_template_kwargs", {{"enable_thinking", {1}}}}}), 400,
       "chat_template_kwargs.enable_thinking"},
      {"T6 the template refuses", kChat, chat(message({{"name", "nobody"}})), 400, "messages"},
      {"G response_format", kChat, chat({{"response_format", {{"type", "json_schema"}}}}), 400,
       "response_format.type"},
      {"G guided_json", kChat, chat({{"guided_json", json::object()}}), 400, "guided_json"},
      {"G6 129 tools", kChat, chat({{"tools", many(129, tool("a"))}}), 400, "tools"},
      {"G6 name twice", kChat, chat({{"tools", {tool("a"), tool("a")}}}), 400,
       "tools[1].function.name"},
      {"G6 name with quotes", kChat, chat({{"tools", {tool("a\"b")}}}), 400,
       "tools[0].function.name"},
      {"G6 no name", kChat, chat({{"tools", {{{"type", "function"}}}}}), 400, "tools[0].function"},
      {"G6 choice required", kChat, chat({{"tools", {tool("a")}}, {"tool_choice", "required"}}),
       400, "tool_choice"},
      {"G6 choice by name", kChat, chat({{"tools", {tool("a")}}, {"tool_choice", tool("a")}}), 400,
       "tool_choice"},
      {"functions", kChat, chat({{"functions", {tool("a")}}}), 400, "functions"},
      {"suffix", kCompletions, completion({{"suffix", "x"}}), 400, "suffix"},
      {"audio", kChat, chat({{"audio", {{"voice", "x"}}}}), 400, "audio"},
      {"modalities", kChat, chat({{"modalities", {"text", "audio"}}}), 400, "modalities"},
      {"beam search", kChat, chat({{"use_beam_search", true}}), 400, "use_beam_search"},
      {"chat echo", kChat, chat({{"echo", true}}), 400, "echo"},
      {"tokenize nothing", "/v1/tokenize", "{}", 400, "prompt"},
      {"tokenize both", "/v1/tokenize",
       R"({"prompt":"a","messages":[{"role":"user","content":"a"}]})", 400, "prompt"},
      {"tokenize 9 MB", "/v1/tokenize", json{{"prompt", std::string(9000000, 'a')}}.dump(), 400,
       "prompt"},
      {"detokenize nothing", "/v1/detokenize", "{}", 400, "tokens"},
      {"detokenize -1", "/v1/detokenize", R"({"tokens":[-1]})", 400, "tokens[0]"},
      {"detokenize beyond", "/v1/detokenize", R"({"tokens":[300]})", 400, "tokens[0]"},
      {"detokenize model", "/v1/detokenize", R"({"model":"x","tokens":[1]})", 404, "model"},
  };
}

void check_all(const std::vector<Case>& cases) {
  ServiceRig rig;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const Call call = rig.post_raw(one.path, one.body);
    ASSERT_EQ(call->status, one.status) << call->body;
    EXPECT_EQ(call->type, "application/json");
    EXPECT_EQ(call->param(), one.param) << call->body;
    const json error = call->parsed()["error"];
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_TRUE(error["code"].is_string());
    EXPECT_LT(error["message"].get<std::string>().size(), 400U);
    EXPECT_TRUE(rig.still_serves());
  }
  EXPECT_TRUE(rig.service().idle());
  const Metrics& metrics = rig.service().metrics();
  EXPECT_EQ(metrics.ended[static_cast<size_t>(Outcome::kClientError)],
            static_cast<int64_t>(cases.size()));
  EXPECT_EQ(metrics.requests, 2 * static_cast<int64_t>(cases.size()));
}

TEST(ServiceLimits, BadJsonAndFieldsAreRefusedByName) {
  check_all(json_cases());
}

TEST(ServiceLimits, BadSamplingAndBudgetsAreRefusedByName) {
  check_all(number_cases());
}

TEST(ServiceLimits, BadTokensStopsAndNamesAreRefusedByName) {
  check_all(token_and_name_cases());
}

TEST(ServiceLimits, WhatIsNotSupportedIsRefusedByName) {
  check_all(feature_cases());
}

TEST(ServiceLimits, EdgesThatAreLegalAreServed) {
  ServiceRig rig;
  const json deepest = json::parse(std::string(62, '[') + std::string(62, ']'));
  for (const json& fields : std::vector<json>{
           {{"unknown_field", deepest}},
           {{"temperature", 1e-38}},
           {{"temperature", 2}},
           {{"top_p", 1}},
           {{"top_k", -1}},
           {{"top_k", 2147483647}},
           {{"seed", -9223372036854775807}},
           {{"seed", 18446744073709551615U}},
           {{"logit_bias", biases(300)}},
           {{"logit_bias", {{"299", -100}, {"0", 100}}}},
           {{"stop", many(16, std::string(256, 'x'))}},
           {{"stop", nullptr}},
           {{"n", 128}, {"max_tokens", 1}},
           {{"max_tokens", 2147483647}},
           {{"max_tokens", 3}, {"max_completion_tokens", 3}},
           {{"ignore_eos", true}, {"max_tokens", 3}, {"min_tokens", 3}},
           {{"response_format", {{"type", "text"}}}, {"modalities", {"text"}}},
           {{"tools", {tool("a"), tool("b")}}, {"tool_choice", "auto"}},
           {{"tools", {tool("a")}}, {"tool_choice", "none"}},
           {{"chat_template_kwargs", {{"enable_thinking", false}}}},
           {{"user", "u"}, {"metadata", {{"a", "b"}}}, {"store", false}},
           {{"logprobs", true}, {"top_logprobs", 20}, {"tools", {tool("a")}}},
           message({{"content", "\xef\xbf\xbe \xe2\x80\x8f NUL: " + std::string(1, '\0')}}),
           message({{"role", "developer"}}),
       }) {
    SCOPED_TRACE(fields.dump().substr(0, 200));
    const Call call = rig.post_raw(kChat, chat(fields));
    EXPECT_EQ(call->status, 200) << call->body;
  }
  EXPECT_EQ(rig.service().metrics().unknown_fields, 1);
}

TEST(ServiceLimits, AWrongContentTypeIsRefused) {
  ServiceRig rig;
  for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded"}) {
    const Call call = rig.send("POST", kChat, chat({}), type);
    rig.run();
    EXPECT_EQ(call->status, 400) << type;
  }
  EXPECT_TRUE(rig.still_serves());
}

// Two options at a time, since each is checked alone above: none may fail or hang.
TEST(ServiceLimits, OptionsWorkInPairs) {
  ServiceRig rig;
  const std::vector<json> options = {
      {{"stream", true}, {"stream_options", {{"include_usage", true}}}},
      {{"logprobs", true}, {"top_logprobs", 2}},
      {{"n", 3}},
      {{"stop", {"lo", "rl"}}},
      {{"tools", {tool("a")}}},
      {{"response_format", {{"type", "text"}}}},
      {{"seed", 5}, {"temperature", 0.5}},
      {{"max_completion_tokens", 6}},
      {{"min_tokens", 2}},
      {{"logit_bias", {{"1", 1}}}},
      {{"stop_token_ids", {44}}},
      {{"skip_special_tokens", false}},
  };
  for (const json& first : options) {
    for (const json& second : options) {
      json fields = first;
      fields.update(second);
      SCOPED_TRACE(fields.dump());
      const Call call = rig.post_raw(kChat, chat(fields));
      ASSERT_EQ(call->status, 200) << call->body;
      EXPECT_TRUE(call->ended);
      EXPECT_FALSE(call->finish_reason().empty());
    }
  }
  EXPECT_TRUE(rig.service().idle());
}

TEST(ServiceLimits, APromptThatNeverFitsTheCacheIsRefusedAtOnce) {
  ServiceRig rig({.context_tokens_max = 512, .kv_tokens_max = 100});
  const Call call = rig.post_raw(kCompletions, completion({{"prompt", std::string(100, 'a')}}));
  EXPECT_EQ(call->status, 400);
  EXPECT_EQ(call->param(), "prompt");
  EXPECT_EQ(call->parsed()["error"]["code"], "context_length_exceeded");
  const Call fits = rig.post_raw(
      kCompletions, completion({{"prompt", std::string(90, 'a')}, {"max_tokens", 500}}));
  EXPECT_EQ(fits->status, 200);
  EXPECT_EQ(fits->parsed()["usage"]["completion_tokens"], 10);  // clamped to what the cache leaves
  EXPECT_EQ(fits->finish_reason(), "length");
}

TEST(ServiceLimits, FullQueuesAnswer429) {
  RigOptions workers;
  workers.work_queue_full = true;
  ServiceRig no_workers(std::move(workers));
  const Call refused = no_workers.post_raw(kChat, chat({}));
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->parsed()["error"]["type"], "rate_limit_error");
  ASSERT_EQ(refused->headers.size(), 1U);
  EXPECT_EQ(refused->headers[0].first, "Retry-After");

  ServiceRig small_link({.link_submits_max = 2});
  EXPECT_EQ(small_link.post_raw(kCompletions, completion({{"n", 3}}))->status, 429);
  EXPECT_TRUE(small_link.still_serves());
  EXPECT_TRUE(small_link.service().idle());

  ServiceRig small_queue({.queue_requests_max = 2});
  const Call one = small_queue.send("POST", kCompletions, completion({{"n", 2}}));
  const Call two = small_queue.send("POST", kCompletions, completion({}));
  small_queue.run();
  EXPECT_EQ(one->status, 200);
  EXPECT_EQ(two->status, 429);
  EXPECT_EQ(small_queue.post_raw(kCompletions, completion({{"n", 3}}))->status, 400);
  EXPECT_TRUE(small_queue.still_serves());
}

TEST(ServiceLimits, ATenantsBudgetHoldsBackOnlyThatTenant) {
  RigOptions options;
  options.service.tenant_tokens_max = 100;
  ServiceRig rig(std::move(options));
  const std::string body = completion({{"max_tokens", 60}});
  const Call first = rig.send("POST", kCompletions, body, "application/json", 1);
  const Call same = rig.send("POST", kCompletions, body, "application/json", 1);
  const Call other = rig.send("POST", kCompletions, body, "application/json", 2);
  rig.run();
  EXPECT_EQ(first->status, 200);
  EXPECT_EQ(same->status, 429);
  EXPECT_EQ(other->status, 200);
  const Call later = rig.send("POST", kCompletions, body, "application/json", 1);
  rig.run();
  EXPECT_EQ(later->status, 200);
  EXPECT_EQ(rig.post_raw(kCompletions, completion({{"max_tokens", 99}}))->status, 400);
}

}  // namespace
}  // namespace tandem::serve
