// SPDX-License-Identifier: Apache-2.0
// Token events to answers: streamed equals whole, stop strings and characters that tokens cut
// apart, clients that go or stall, and engines that fail midway.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "serve/service_test_rig.h"

namespace tandem::serve {
namespace {

using engine::FinishReason;
using nlohmann::json;

json completion(const json& fields) {
  json body = {{"prompt", "hi"}, {"max_tokens", 40}};
  if (!fields.is_null()) body.update(fields);
  return body;
}

json chat(const json& fields) {
  json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 40}};
  if (!fields.is_null()) body.update(fields);
  return body;
}

RigOptions answering(std::string_view text) {
  RigOptions options;
  options.engine.tokens = ServiceRig::ids(text);
  return options;
}

// Puts one request into a rig whose engine is the test itself.
class ByHand {
 public:
  explicit ByHand(const json& body, ServiceOptions service = {})
      : rig_({.service = std::move(service), .engine_runs = false, .chat_template = false}),
        call_(rig_.post(kCompletions, body)) {
    rig_.link().take_work(work_);
  }
  void emit(int32_t token, FinishReason finish = FinishReason::kNone, size_t choice = 0) {
    std::vector<engine::TokenEvent> events(1);
    events[0] = {.id = work_.submits.at(choice).id,
                 .has_token = true,
                 .token = {.token = token, .logprob = -1},
                 .finish = finish};
    rig_.link().emit(std::move(events));
    rig_.run_io();
  }
  void end(FinishReason finish, std::optional<Error> error = {}, size_t choice = 0) {
    std::vector<engine::TokenEvent> events(1);
    events[0] = {.id = work_.submits.at(choice).id, .finish = finish, .error = std::move(error)};
    rig_.link().emit(std::move(events));
    rig_.run_io();
  }
  engine::Link::Work& take_work() {
    work_.cancels.clear();
    rig_.link().take_work(work_);
    return work_;
  }
  ServiceRig& rig() { return rig_; }
  const Recorded* operator->() const { return call_.answer.get(); }
  [[nodiscard]] const Call& call() const { return call_; }

 private:
  ServiceRig rig_;
  Call call_;
  engine::Link::Work work_;
};

TEST(Stream, StreamedEqualsWhole) {
  ServiceRig rig(answering("na\xc3\xafve \"\\\n\x01 \xe4\xb8\x96\xe7\x95\x8c \xf0\x9f\x99\x82."));
  for (const json& fields : std::vector<json>{
           json::object(),
           {{"n", 3}},
           {{"stop", {"ve", "\xe7\x95\x8c"}}},
           {{"stop", "\xf0\x9f\x99\x82"}},
           {{"max_tokens", 3}},  // ends inside a character
           {{"prompt", {"a", "bc"}}, {"n", 2}},
           {{"prompt", "echoed "}, {"echo", true}},
           {{"logprobs", 2}},
           {{"logprobs", 0}, {"stop", "\xe4\xb8\x96"}},
       }) {
    SCOPED_TRACE(fields.dump());
    json body = completion(fields);
    const Call whole = rig.post(kCompletions, body);
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const Call streamed = rig.post(kCompletions, body);
    ASSERT_EQ(whole->status, 200) << whole->body;
    ASSERT_TRUE(streamed->streamed && streamed->ended && streamed->done()) << streamed->body;
    EXPECT_EQ(streamed->type, "text/event-stream");
    const json answer = whole->parsed();
    for (int i = 0; i < static_cast<int>(answer["choices"].size()); ++i) {
      EXPECT_EQ(streamed->text(i), whole->text(i));
      EXPECT_EQ(streamed->finish_reason(i), whole->finish_reason(i));
    }
    EXPECT_EQ(streamed->events().back()["usage"], answer["usage"]);
  }
  EXPECT_TRUE(rig.service().idle());
}

TEST(Stream, ChatChunksHaveOpenAisShape) {
  ServiceRig rig(answering("Hi!"));
  const Call call = rig.post(kChat, chat({{"stream", true}, {"max_tokens", 3}}));
  const auto events = call->events();
  ASSERT_GE(events.size(), 3U);
  for (const json& event : events) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["id"], "chatcmpl-req-1");
    EXPECT_EQ(event["created"], 1700000000);
    EXPECT_EQ(event["model"], "tiny");
    EXPECT_EQ(event["system_fingerprint"], "fp_test");
    EXPECT_FALSE(event.contains("usage"));
    EXPECT_EQ(event["choices"].size(), 1U);
  }
  EXPECT_EQ(events.front()["choices"][0]["delta"], (json{{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(events.back()["choices"][0]["delta"], json::object());
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(call->text(), "Hi!");
  EXPECT_TRUE(call->done());
}

TEST(Stream, UsageChunkComesLastAndOthersSayNull) {
  ServiceRig rig;
  const Call call = rig.post(
      kChat, chat({{"stream", true}, {"n", 2}, {"stream_options", {{"include_usage", true}}}}));
  const auto events = call->events();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_TRUE(events[i].contains("usage") && events[i]["usage"].is_null());
  }
  EXPECT_EQ(events.back()["choices"], json::array());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 80);
  EXPECT_EQ(events.back()["usage"]["total_tokens"],
            events.back()["usage"]["prompt_tokens"].get<int>() + 80);
}

TEST(Stream, AStopStringAcrossTokensEndsTheTextBeforeIt) {
  ServiceRig rig;
  const std::string all = "Hello, world. Hello, world. Hello, world";
  for (size_t begin = 0; begin < 14; ++begin) {
    for (size_t length = 1; length < 9; ++length) {
      const std::string stop = all.substr(begin, length);
      const std::string want = all.substr(0, all.find(stop));
      for (const bool stream : {false, true}) {
        const Call call = rig.post(kCompletions, completion({{"stop", stop}, {"stream", stream}}));
        ASSERT_EQ(call->text(), want) << stop;
        ASSERT_EQ(call->finish_reason(), "stop");
      }
    }
  }
  EXPECT_TRUE(rig.service().idle());
}

TEST(Stream, AStopStringCancelsTheEnginesRequest) {
  ByHand request(completion({{"stop", "b"}, {"n", 2}}));
  request.emit('a');
  request.emit('b');
  EXPECT_EQ(request.take_work().cancels.size(), 1U);
  request.emit('c');  // was under way already; nothing of it shows
  request.emit('x', FinishReason::kLength, 1);
  EXPECT_EQ(request->text(0), "a");
  EXPECT_EQ(request->text(1), "x");
  EXPECT_EQ(request->parsed()["usage"]["completion_tokens"], 3);
  EXPECT_FALSE(request.rig().service().idle());  // the cancelled one's last event is to come
  request.end(FinishReason::kCancelled);
  EXPECT_TRUE(request.rig().service().idle());
}

TEST(Stream, AHalfCharacterWaitsAndBecomesTheReplacementOnlyAtTheEnd) {
  ByHand request(completion({{"stream", true}}));
  request.emit(0xe4);
  request.emit(0xb8);
  EXPECT_EQ(request->text(), "");
  request.emit(0x96);
  EXPECT_EQ(request->text(), "\xe4\xb8\x96");
  request.emit(0xf0);
  request.emit(0x9f, FinishReason::kLength);
  EXPECT_EQ(request->text().substr(0, 6), "\xe4\xb8\x96\xef\xbf\xbd");
  EXPECT_TRUE(request->done());
}

TEST(Stream, TheStopIdIsCountedButIsNoText) {
  ByHand request(completion({{"logprobs", 0}}));
  request.emit('a');
  request.emit(ServiceRig::kTurnEnd, FinishReason::kStop);
  EXPECT_EQ(request->text(), "a");
  EXPECT_EQ(request->finish_reason(), "stop");
  const json answer = request->parsed();
  EXPECT_EQ(answer["usage"]["completion_tokens"], 2);
  EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"], json::array({"a"}));
}

TEST(Stream, SpecialTokensShowOnlyWhereAsked) {
  for (const bool skip : {true, false}) {
    ByHand request(completion({{"skip_special_tokens", skip}}));
    request.emit('a');
    request.emit(ServiceRig::kEndOfText);
    request.emit('b', FinishReason::kLength);
    EXPECT_EQ(request->text(), skip ? "ab" : "a<|endoftext|>b");
  }
}

TEST(Stream, TokensThatArriveTogetherLeaveInOneSend) {
  ByHand request(completion({{"stream", true}}));
  std::vector<engine::TokenEvent> events;
  const RequestId id = [&] {
    request.emit('a');
    return RequestId{1};
  }();
  const int sends = request->sends;
  for (const char c : std::string("bcd")) {
    events.push_back({.id = id, .has_token = true, .token = {.token = c}});
  }
  request.rig().link().emit(std::move(events));
  request.rig().run_io();
  EXPECT_EQ(request->sends, sends + 1);
  EXPECT_EQ(request->text(), "abcd");
}

TEST(Stream, AClientThatLeavesCancelsEveryChoiceAtOnce) {
  for (const bool stream : {false, true}) {
    ByHand request(completion({{"n", 3}, {"stream", stream}}));
    request.emit('a');
    request.call().client_gone();
    EXPECT_EQ(request.take_work().cancels.size(), 3U);
    request.emit('b');
    for (size_t i = 0; i < 3; ++i) request.end(FinishReason::kCancelled, {}, i);
    EXPECT_TRUE(request.rig().service().idle());
    const Metrics& metrics = request.rig().service().metrics();
    EXPECT_EQ(metrics.ended[static_cast<size_t>(Outcome::kCancelled)], 1);
    EXPECT_EQ(metrics.running, 0);
    EXPECT_EQ(metrics.streams, 0);
  }
}

TEST(Stream, AClientThatLeavesBeforeTheSubmitIsNeverSubmitted) {
  ServiceRig rig({.engine_runs = false});
  const Call call = rig.send("POST", kCompletions, completion({}).dump());
  call.client_gone();
  rig.run();
  engine::Link::Work work;
  rig.link().take_work(work);
  EXPECT_TRUE(work.empty());
  EXPECT_TRUE(rig.service().idle());
  EXPECT_EQ(rig.service().metrics().ended[static_cast<size_t>(Outcome::kCancelled)], 1);
}

TEST(Stream, ASlowClientIsCutAfterItsGrace) {
  ServiceOptions options;
  options.stream = {
      .unsent_bytes_slow = 100, .unsent_bytes_max = 1000, .slow_grace = std::chrono::seconds(5)};
  ByHand request(completion({{"stream", true}}), options);
  request.emit('a');
  request.call().answer->unsent_bytes = 200;
  request.emit('b');
  request.rig().advance(std::chrono::seconds(4));
  request.emit('c');
  EXPECT_FALSE(request->cut);
  request.call().answer->unsent_bytes = 50;  // it caught up: the grace begins anew
  request.emit('d');
  request.call().answer->unsent_bytes = 200;
  request.rig().advance(std::chrono::seconds(4));
  request.emit('e');
  EXPECT_FALSE(request->cut);
  request.rig().advance(std::chrono::seconds(6));
  request.emit('f');
  EXPECT_TRUE(request->cut);
  EXPECT_FALSE(request->ended);
  EXPECT_EQ(request.take_work().cancels.size(), 1U);
  EXPECT_EQ(request.rig().service().metrics().slow_clients, 1);
}

TEST(Stream, AClientOverTheHardLimitIsCutAtOnce) {
  ServiceOptions options;
  options.stream = {.unsent_bytes_slow = 100, .unsent_bytes_max = 1000};
  ByHand request(completion({{"stream", true}}), options);
  request.call().answer->unsent_bytes = 1001;
  request.emit('a');
  EXPECT_TRUE(request->cut);
}

TEST(Stream, AnEnginesErrorBeforeTheFirstByteIsAStatus) {
  const std::vector<std::pair<ErrorCode, int>> codes = {
      {ErrorCode::kInternal, 500},          {ErrorCode::kDataLoss, 500},
      {ErrorCode::kUnavailable, 503},       {ErrorCode::kDeadlineExceeded, 504},
      {ErrorCode::kResourceExhausted, 429}, {ErrorCode::kTooLarge, 400}};
  for (const auto& [code, status] : codes) {
    for (const bool stream : {false, true}) {
      ByHand request(completion({{"stream", stream}}));
      request.end(FinishReason::kError, Error{code, "/secret/path 0xdeadbeef", ""});
      EXPECT_EQ(request->status, status);
      EXPECT_FALSE(request->streamed);
      EXPECT_TRUE(status != 500 || request->body.find("secret") == std::string::npos);
      EXPECT_TRUE(request.rig().service().idle());
    }
  }
}

TEST(Stream, AnEnginesErrorMidwayIsAnEventAndNoDone) {
  ByHand request(completion({{"stream", true}, {"n", 2}}));
  request.emit('a');
  request.end(FinishReason::kError, Error{ErrorCode::kInternal, "x", ""});
  EXPECT_TRUE(request->ended);
  EXPECT_FALSE(request->done());
  EXPECT_EQ(request->events().back()["error"]["type"], "server_error");
  EXPECT_EQ(request.take_work().cancels.size(), 2U);
  EXPECT_EQ(request.rig().service().metrics().ended[static_cast<size_t>(Outcome::kFailed)], 1);
}

TEST(Stream, ARequestThatTheEngineCancelledByItselfMayBeRetried) {
  ByHand request(completion({}));
  request.end(FinishReason::kCancelled);
  EXPECT_EQ(request->status, 503);
}

TEST(Stream, DrainRefusesNewRequestsAndEndsOldOnesAtItsDeadline) {
  ByHand request(completion({{"stream", true}}));
  request.emit('a');
  request.rig().service().begin_drain();
  EXPECT_EQ(request.rig().post(kCompletions, completion({}))->status, 503);
  EXPECT_EQ(request.rig().get("/ready")->status, 503);
  EXPECT_EQ(request.rig().get("/live")->status, 200);
  request.emit('b');
  EXPECT_EQ(request->text(), "ab");
  EXPECT_FALSE(request.rig().service().idle());
  request.rig().service().end_all();
  EXPECT_TRUE(request->ended);
  EXPECT_FALSE(request->done());
  EXPECT_TRUE(request->events().back().contains("error"));
  request.end(FinishReason::kCancelled);
  EXPECT_TRUE(request.rig().service().idle());
}

}  // namespace
}  // namespace tandem::serve
