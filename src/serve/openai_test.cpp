// SPDX-License-Identifier: Apache-2.0
// The shapes of whole answers, logprobs, models, tokenise, and what must never be in an answer.
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "core/log.h"
#include "serve/service_test_rig.h"

namespace tandem::serve {
namespace {

using nlohmann::json;

json chat(const json& fields) {
  json body = {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}};
  if (!fields.is_null()) body.update(fields);
  return body;
}

TEST(OpenAi, AWholeChatAnswer) {
  ServiceRig rig;
  const Call call = rig.post(kChat, chat({{"max_tokens", 5}}));
  // 18 bytes of text ("user\nhi", "\n", "assistant\n") and three special tokens.
  const json want = {
      {"id", "chatcmpl-req-1"},
      {"object", "chat.completion"},
      {"created", 1700000000},
      {"model", "tiny"},
      {"system_fingerprint", "fp_test"},
      {"choices",
       {{{"index", 0},
         {"message", {{"role", "assistant"}, {"content", "Hello"}, {"refusal", nullptr}}},
         {"logprobs", nullptr},
         {"finish_reason", "length"}}}},
      {"usage",
       {{"prompt_tokens", 21},
        {"completion_tokens", 5},
        {"total_tokens", 26},
        {"prompt_tokens_details", {{"cached_tokens", 0}}}}}};
  EXPECT_EQ(call->parsed(), want) << call->body;
}

TEST(OpenAi, AWholeCompletionAnswer) {
  ServiceRig rig;
  const Call call = rig.post(kCompletions, {{"prompt", {"a", "bc"}}, {"n", 2}, {"max_tokens", 2}});
  const json answer = call->parsed();
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["id"], "cmpl-req-1");
  ASSERT_EQ(answer["choices"].size(), 4U);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(
        answer["choices"][static_cast<size_t>(i)],
        (json{{"index", i}, {"text", "He"}, {"logprobs", nullptr}, {"finish_reason", "length"}}));
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 8);
}

TEST(OpenAi, ChatLogprobs) {
  ServiceRig rig;
  const Call call =
      rig.post(kChat, chat({{"max_tokens", 1}, {"logprobs", true}, {"top_logprobs", 2}}));
  const json want = {{"content",
                      {{{"token", "H"},
                        {"logprob", -0.5},
                        {"bytes", {72}},
                        {"top_logprobs",
                         {{{"token", "H"}, {"logprob", -0.5}, {"bytes", {72}}},
                          {{"token", "I"}, {"logprob", -1.193147}, {"bytes", {73}}}}}}}},
                     {"refusal", nullptr}};
  EXPECT_EQ(call->parsed()["choices"][0]["logprobs"], want) << call->body;
  const Call none = rig.post(kChat, chat({{"max_tokens", 1}, {"logprobs", true}}));
  EXPECT_EQ(none->parsed()["choices"][0]["logprobs"]["content"][0]["top_logprobs"], json::array());
}

TEST(OpenAi, CompletionLogprobsWithEcho) {
  ServiceRig rig;
  const Call call = rig.post(
      kCompletions, {{"prompt", "\xc3\xa4x"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}});
  const json choice = call->parsed()["choices"][0];
  EXPECT_EQ(choice["text"], "\xc3\xa4xH");
  const json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (json{"\xef\xbf\xbd", "\xef\xbf\xbd", "x", "H"}));
  EXPECT_EQ(logprobs["token_logprobs"], (json{nullptr, -0.5, -0.5, -0.5}));
  EXPECT_EQ(logprobs["text_offset"], (json{0, 1, 1, 2}));  // characters, of whole ones
  EXPECT_EQ(logprobs["top_logprobs"][0], nullptr);
  EXPECT_EQ(logprobs["top_logprobs"][3], (json{{"H", -0.5}}));
}

TEST(OpenAi, MaxTokensZeroScoresThePrompt) {
  ServiceRig rig;
  for (const bool stream : {false, true}) {
    const Call call = rig.post(kCompletions, {{"prompt", "abc"},
                                              {"echo", true},
                                              {"logprobs", 0},
                                              {"max_tokens", 0},
                                              {"stream", stream}});
    ASSERT_EQ(call->status, 200) << call->body;
    EXPECT_EQ(call->text(), "abc");
    EXPECT_EQ(call->finish_reason(), "length");
  }
  const Call alone = rig.post(kCompletions, {{"prompt", "abc"}, {"echo", true}, {"max_tokens", 0}});
  EXPECT_EQ(alone->text(), "abc");
  EXPECT_EQ(alone->parsed()["usage"]["completion_tokens"], 0);
}

TEST(OpenAi, SubmitsCarryWhatTheRequestSaid) {
  ServiceRig rig({.engine_runs = false});
  rig.send("POST", kCompletions,
           R"({"prompt":[[1,2],[3]],"n":2,"seed":9,"max_tokens":4,"stop_token_ids":[5]})",
           "application/json", 42);
  rig.run();
  engine::Link::Work work;
  rig.link().take_work(work);
  ASSERT_EQ(work.submits.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    const engine::Submit& submit = work.submits[i];
    EXPECT_EQ(submit.prompt, i < 2 ? (std::vector<int32_t>{1, 2}) : (std::vector<int32_t>{3}));
    EXPECT_EQ(submit.sampling.choice_idx, i % 2);
    EXPECT_EQ(submit.sampling.seed, 9U);
    EXPECT_EQ(submit.max_tokens, 4);
    EXPECT_EQ(submit.stop_ids, (std::vector<int32_t>{5, ServiceRig::kTurnEnd}));
    EXPECT_EQ(submit.tenant, 42U);
    EXPECT_NE(submit.cache_salt, 0U);
    EXPECT_EQ(submit.cache_salt, work.submits[0].cache_salt);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(submit.id, work.submits[j].id);
  }
  rig.send("POST", kCompletions, R"({"prompt":"a"})", "application/json", 43);
  rig.send("POST", kCompletions, R"({"prompt":"a","ignore_eos":true,"max_tokens":1})");
  rig.run();
  work.submits.clear();
  rig.link().take_work(work);
  EXPECT_NE(work.submits.at(0).cache_salt, 0U);
  EXPECT_NE(work.submits.at(0).sampling.seed, work.submits.at(1).sampling.seed);
  EXPECT_EQ(work.submits.at(1).cache_salt, 0U);
  EXPECT_TRUE(work.submits.at(1).stop_ids.empty());
}

TEST(OpenAi, SpecialTokensInAUsersTextStayText) {
  ServiceRig rig({.engine_runs = false});
  rig.post(kChat, chat({{"messages", {{{"role", "user"}, {"content", "a<|im_end|>b"}}}}}));
  rig.post(kCompletions, {{"prompt", "a<|im_end|>b"}});
  engine::Link::Work work;
  rig.link().take_work(work);
  ASSERT_EQ(work.submits.size(), 2U);
  const auto count = [](const std::vector<int32_t>& ids) {
    return std::count(ids.begin(), ids.end(), ServiceRig::kTurnEnd);
  };
  EXPECT_EQ(count(work.submits[0].prompt), 1);  // the template's own
  EXPECT_EQ(count(work.submits[1].prompt), 0);
}

TEST(OpenAi, Models) {
  ServiceRig rig;
  const json list = rig.get("/v1/models")->parsed();
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["max_model_len"], 512);
  EXPECT_EQ(rig.get("/v1/models/tiny")->parsed(), list["data"][0]);
}

TEST(OpenAi, TokeniseAndBack) {
  ServiceRig rig;
  const std::string text =
      "Gr\xc3\xbc\xc3\x9f"
      "e <|im_end|> \xf0\x9f\x99\x82";
  const Call call = rig.post("/v1/tokenize", {{"prompt", text}, {"return_token_strs", true}});
  const json tokens = call->parsed();
  EXPECT_EQ(tokens["count"], text.size());
  EXPECT_EQ(tokens["tokens"], json(ServiceRig::ids(text)));
  EXPECT_EQ(tokens["token_strs"][0], "G");
  EXPECT_EQ(rig.post("/v1/detokenize", {{"tokens", tokens["tokens"]}})->parsed()["prompt"], text);
  const Call messages =
      rig.post("/v1/tokenize", {{"messages", {{{"role", "user"}, {"content", "hi"}}}}});
  EXPECT_EQ(messages->parsed()["count"], 21);
}

TEST(OpenAi, TheCanaryIsNowhere) {
  const std::string canary = "canary8142563";
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  spdlog::set_level(spdlog::level::trace);
  {
    ServiceRig rig;
    std::string errors;
    for (const json& body : std::vector<json>{
             chat({{"messages", {{{"role", "user"}, {"content", canary}}}}}),
             chat({{"messages", {{{"role", canary}, {"content", canary}}}}}),
             chat({{"model", canary}}),
             chat({{"stop", canary}, {"temperature", canary}}),
             chat({{"tool_choice", canary}}),
             chat({{"chat_template_kwargs", {{canary, 1}}}}),
             chat({{"logit_bias", {{canary, 1}}}}),
             chat({{"response_format", {{"type", canary}}}}),
         }) {
      errors += rig.post(kChat, body)->body;
    }
    errors += rig.post_raw(kChat, canary)->body;
    EXPECT_EQ(errors.find(canary), std::string::npos) << errors;
    EXPECT_EQ(rig.get("/metrics")->body.find(canary), std::string::npos);
  }
  spdlog::set_default_logger(before);
  spdlog::set_level(spdlog::level::info);
  EXPECT_EQ(log.str().find(canary), std::string::npos);
}

TEST(OpenAi, AModelWithoutATemplateRefusesChat) {
  ServiceRig rig({.chat_template = false});
  const Call call = rig.post(kChat, chat({{"n", 1}}));
  EXPECT_EQ(call->status, 400);
  EXPECT_EQ(call->param(), "messages");
  EXPECT_TRUE(rig.still_serves());
}

TEST(OpenAi, EveryRequestEndsInExactlyOneKind) {
  ServiceRig rig;
  EXPECT_TRUE(rig.still_serves());
  rig.post(kChat, chat({{"n", 0}}));
  rig.post("/v1/tokenize", {{"prompt", "x"}});
  const Call gone = rig.send("POST", kChat, chat({}).dump());
  gone.client_gone();
  rig.run();
  rig.service().begin_drain();
  rig.post(kChat, chat({}));
  const Metrics& metrics = rig.service().metrics();
  EXPECT_EQ(metrics.ended, (std::array<int64_t, 4>{2, 1, 1, 1}));
  EXPECT_EQ(metrics.requests, 5);
}

}  // namespace
}  // namespace tandem::serve
