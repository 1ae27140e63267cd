// SPDX-License-Identifier: Apache-2.0
// Renders a model's chat template with Jinja2 itself (ImmutableSandboxedEnvironment) in a helper
// process under limits of memory, CPU, wall time and output; a helper that oversteps is killed and
// replaced. serve/ and app/ call it from worker threads: render() blocks until the deadline at
// most.
//
// Special tokens inside message text stay text: before rendering, each special string (<|im_end|>,
// …) inside the context's strings is replaced by a private marker that no user text can contain (a
// marker in user text is escaped as well); after rendering the prompt is cut at the markers into
// pieces, and tokenised piece by piece.
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

struct TemplateLimits {
  size_t memory_bytes_max = size_t{512} << 20;  // address space of a helper
  std::chrono::milliseconds wall_max{2000};     // one render
  std::chrono::milliseconds cpu_max{2000};      // one render
  size_t output_bytes_max = size_t{16} << 20;
  size_t helpers = 1;
};

// A prompt as pieces: text of the template (special tokens parsed) and text of users that looks
// like special tokens.
struct PromptPiece {
  std::string text;
  Specials specials = Specials::kParse;
};

class ChatTemplate {
 public:
  // Finds chat_template.jinja (wins) or tokenizer_config.json's chat_template in the model folder,
  // starts the helpers and compiles the template once; errors name the file.
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
  // words; kDeadlineExceeded; kTooLarge. After an error the next render works.
  [[nodiscard]] Result<std::vector<PromptPiece>> render(std::string_view context_json) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The ids of a rendered prompt.
[[nodiscard]] std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer,
                                                 const std::vector<PromptPiece>& pieces);

}  // namespace tandem::text
