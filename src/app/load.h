// SPDX-License-Identifier: Apache-2.0
// A model folder made ready to run: config, tokenizer, chat template, packed weights. serve and
// generate call it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/result.h"
#include "model/config.h"
#include "model/forward.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::app {

// What the front end needs; cheap to load.
struct LoadedText {
  model::ModelConfig config;
  model::GenerationDefaults defaults;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;  // absent where the folder has none
  std::vector<int32_t>
      eos_ids;  // of config.json, generation_config.json and the tokenizer's chat end
};

[[nodiscard]] Result<LoadedText> load_text(const std::filesystem::path& model_dir);

// Reads and packs the weights, with progress on stderr unless quiet.
[[nodiscard]] Result<model::Model> load_model(const std::filesystem::path& model_dir,
                                              const model::ModelConfig& config, const Exec& exec,
                                              bool quiet);

}  // namespace tandem::app
