// SPDX-License-Identifier: Apache-2.0
// Renders a model's chat template with Jinja2 itself (ImmutableSandboxedEnvironment) in a helper
// process under limits of memory, CPU, wall time and output; a helper that oversteps is killed and
// replaced. serve/ and app/ call it from worker threads: render() blocks until the deadline at
// most.
//
// Special tokens inside message text stay text: in the template's source each special string
// (<|im_end|>, …) is replaced by a private-use character that the messages do not have, and after
// rendering the prompt is cut at these characters. What the template wrote becomes special tokens;
// everything else is text, however it was joined, stripped or split on the way. Only tokens marked
// special are kept from users: the others (<think>, <tool_call>, …) stand in the content of honest
// assistant and tool messages, which templates search for them, and they end no turn.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer.h"

namespace tandem::text {

struct TemplateFile;

struct TemplateLimits {
  size_t memory_bytes_max = size_t{512} << 20;  // address space of a helper
  std::chrono::milliseconds wall_max{2000};     // one render
  std::chrono::milliseconds cpu_max{2000};      // one render, in whole seconds rounded up
  size_t output_bytes_max = size_t{16} << 20;
  size_t context_bytes_max = size_t{64} << 20;
  size_t helpers = 1;  // renders at a time
};

// A prompt as pieces: special tokens that the template wrote (kParse), and the text between them
// (kPlain).
struct PromptPiece {
  std::string text;
  Specials specials = Specials::kParse;
};

class ChatTemplate {
 public:
  // Finds chat_template.jinja (wins) or tokenizer_config.json's chat_template in the model folder,
  // starts the helpers and compiles the template once; errors name the file. bos_token, eos_token,
  // unk_token and pad_token of tokenizer_config.json are variables of the template.
  static Result<ChatTemplate> open(const std::filesystem::path& model_dir,
                                   std::vector<std::string> special_strings, TemplateLimits limits);
  static Result<ChatTemplate> from_text(std::string template_text,
                                        std::vector<std::string> special_strings,
                                        TemplateLimits limits);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // `context_json`: an object with messages, tools, add_generation_prompt, enable_thinking, ….
  // Thread safe. Errors: kInvalidArgument with the template's own raise_exception text or our fixed
  // words; kDeadlineExceeded; kTooLarge; kResourceExhausted when all helpers stay busy. After an
  // error the next render works.
  [[nodiscard]] Result<std::vector<PromptPiece>> render(std::string_view context_json) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  static Result<ChatTemplate> make(const TemplateFile& file,
                                   std::vector<std::string> special_strings, TemplateLimits limits);
  std::unique_ptr<State> state_;
};

// The ids of a rendered prompt.
[[nodiscard]] std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer,
                                                 const std::vector<PromptPiece>& pieces);

}  // namespace tandem::text
