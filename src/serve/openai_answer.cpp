// SPDX-License-Identifier: Apache-2.0
#include "serve/openai_answer.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>

#include "serve/json_writer.h"

namespace tandem::serve {
namespace {

std::string_view finish_name(engine::FinishReason reason) {
  return reason == engine::FinishReason::kLength ? "length" : "stop";
}

void append_number(std::string& out, int64_t value) {
  char digits[24];
  const char* end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
  out.append(std::begin(digits), static_cast<size_t>(end - std::begin(digits)));
}

// {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":...
std::string object_head(const AnswerHead& head, std::string_view object) {
  std::string out = R"({"id":)";
  append_json_string(out, head.id);
  out += R"(,"object":")";
  out += object;
  out += R"(","created":)";
  append_number(out, head.created);
  out += R"(,"model":)";
  append_json_string(out, head.model);
  out += R"(,"system_fingerprint":)";
  append_json_string(out, head.fingerprint);
  return out;
}

void append_usage(std::string& out, const Usage& usage) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                 R"("prompt_tokens_details":{{"cached_tokens":{}}}}})",
                 usage.prompt_tokens, usage.completion_tokens,
                 usage.prompt_tokens + usage.completion_tokens, usage.cached_tokens);
}

void append_whole_choice(std::string& out, Endpoint endpoint, const WholeChoice& choice) {
  out += R"({"index":)";
  append_number(out, choice.index);
  if (endpoint == Endpoint::kChat) {
    out += R"(,"message":{"role":"assistant","content":)";
    append_json_string(out, choice.text);
    out += R"(,"refusal":null})";
  } else {
    out += R"(,"text":)";
    append_json_string(out, choice.text);
  }
  out += R"(,"logprobs":)";
  out += choice.logprobs.empty() ? "null" : choice.logprobs;
  out += R"(,"finish_reason":")";
  out += finish_name(choice.finish);
  out += "\"}";
}

}  // namespace

std::string whole_answer_json(const AnswerHead& head, const std::vector<WholeChoice>& choices,
                              const Usage& usage) {
  const bool chat = head.endpoint == Endpoint::kChat;
  std::string out = object_head(head, chat ? "chat.completion" : "text_completion");
  out += R"(,"choices":[)";
  for (const WholeChoice& choice : choices) {
    if (&choice != &choices.front()) out.push_back(',');
    append_whole_choice(out, head.endpoint, choice);
  }
  out += R"(],"usage":)";
  append_usage(out, usage);
  out.push_back('}');
  return out;
}

ChunkWriter::ChunkWriter(const AnswerHead& head) : chat_(head.endpoint == Endpoint::kChat) {
  head_ = "data: ";
  head_ += object_head(head, chat_ ? "chat.completion.chunk" : "text_completion");
  head_ += R"(,"choices":[{"index":)";
  tail_ = head.include_usage ? "}],\"usage\":null}\n\n" : "}]}\n\n";
}

void ChunkWriter::role(std::string& out, int32_t choice) const {
  out += head_;
  append_number(out, choice);
  out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null)";
  out += tail_;
}

void ChunkWriter::text(std::string& out, int32_t choice, std::string_view text,
                       std::string_view logprobs_json) const {
  out += head_;
  append_number(out, choice);
  out += chat_ ? R"(,"delta":{"content":")" : R"(,"text":")";
  append_json_escaped(out, text);
  out += chat_ ? R"("},"logprobs":)" : R"(","logprobs":)";
  out += logprobs_json.empty() ? "null" : logprobs_json;
  out += R"(,"finish_reason":null)";
  out += tail_;
}

void ChunkWriter::finish(std::string& out, int32_t choice, engine::FinishReason reason) const {
  out += head_;
  append_number(out, choice);
  out += chat_ ? R"(,"delta":{},"logprobs":null,"finish_reason":")"
               : R"(,"text":"","logprobs":null,"finish_reason":")";
  out += finish_name(reason);
  out.push_back('"');
  out += tail_;
}

void ChunkWriter::usage(std::string& out, const Usage& usage) const {
  // The head ends inside the list of choices; this event's list is empty.
  out.append(head_, 0, head_.size() - std::string_view(R"({"index":)").size());
  out += R"(],"usage":)";
  append_usage(out, usage);
  out += "}\n\n";
}

void ChunkWriter::error(std::string& out, std::string_view error_json) {
  out += "data: ";
  out += error_json;
  out += "\n\n";
}

}  // namespace tandem::serve
