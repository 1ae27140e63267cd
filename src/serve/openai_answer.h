// SPDX-License-Identifier: Apache-2.0
// Answers of the two generation endpoints as bytes: the whole object, or server-sent events. Hand
// written, because a chunk is made for every token of every stream: the parts that never change
// within a stream are built once. Called by stream.cpp; figures in openai_bench.cpp.
// Source: OpenAI's API reference: chat.completion, chat.completion.chunk, text_completion; WHATWG
// HTML, "Server-sent events".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api.h"
#include "serve/schema.h"

namespace tandem::serve {

struct AnswerHead {
  Endpoint endpoint = Endpoint::kChat;
  std::string id;          // chatcmpl-... or cmpl-...
  int64_t created = 0;     // seconds since 1970
  std::string_view model;  // the served name
  std::string_view fingerprint;
  bool include_usage = false;  // of a stream: other chunks then say "usage": null
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

struct WholeChoice {
  int32_t index = 0;
  std::string_view text;
  std::string_view logprobs;  // JSON, or empty for null
  engine::FinishReason finish = engine::FinishReason::kNone;
};

[[nodiscard]] std::string whole_answer_json(const AnswerHead& head,
                                            const std::vector<WholeChoice>& choices,
                                            const Usage& usage);

inline constexpr std::string_view kEventStreamType = "text/event-stream";
inline constexpr std::string_view kStreamDone = "data: [DONE]\n\n";

// The events of one stream. Appends to a caller's buffer.
class ChunkWriter {
 public:
  explicit ChunkWriter(const AnswerHead& head);

  void role(std::string& out, int32_t choice) const;  // chat only: the first chunk of a choice
  void text(std::string& out, int32_t choice, std::string_view text,
            std::string_view logprobs_json) const;
  void finish(std::string& out, int32_t choice, engine::FinishReason reason) const;
  void usage(std::string& out, const Usage& usage) const;
  static void error(std::string& out, std::string_view error_json);

 private:
  bool chat_;
  std::string head_;  // up to the number of the choice
  std::string tail_;  // behind the choice
};

}  // namespace tandem::serve
