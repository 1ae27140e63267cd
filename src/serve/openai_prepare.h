// SPDX-License-Identifier: Apache-2.0
// A body to what the engine takes: parse, gate, chat template, tokens. The long part of a request
// on the CPU: Service runs it on a worker thread. Pure functions of const objects; nothing here
// knows of the engine's queue or of a connection.
#pragma once

#include <string>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "serve/schema.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::serve {

struct PrepareContext {
  GateContext gate;
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;  // null: the model has none, chat is refused
  const Clock* clock = nullptr;
  // How special strings in the text of a completion's prompt are read. A user's text stays text.
  text::Specials prompt_specials = text::Specials::kPlain;
};

struct PrepareTimes {
  TimePoint begun{}, parsed{}, rendered{}, tokenised{};
};

struct PreparedPrompt {
  std::vector<int32_t> ids;  // >= 1
  int32_t max_tokens = 0;    // of each choice; 0 only for scoring the prompt
};

struct PreparedGeneration {
  GenerationRequest request;
  std::vector<PreparedPrompt> prompts;  // >= 1
  PrepareTimes times;
};

[[nodiscard]] Result<PreparedGeneration> prepare_generation(const PrepareContext& context,
                                                            Endpoint endpoint,
                                                            const std::string& body);

struct PlainAnswer {
  std::string json;
  size_t unknown_fields = 0;
};

// POST /v1/tokenize: {"count","max_model_len","tokens","token_strs"}.
[[nodiscard]] Result<PlainAnswer> answer_tokenize(const PrepareContext& context,
                                                  const std::string& body);
// POST /v1/detokenize: {"prompt"}.
[[nodiscard]] Result<PlainAnswer> answer_detokenize(const PrepareContext& context,
                                                    const std::string& body);

}  // namespace tandem::serve
