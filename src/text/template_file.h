// SPDX-License-Identifier: Apache-2.0
// Where a model folder keeps its chat template. chat_template.cpp calls it.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"

namespace tandem::text {

struct TemplateFile {
  std::filesystem::path path;  // where the source came from
  std::string source;
  std::vector<std::pair<std::string, std::string>> variables;  // "eos_token" -> "<|im_end|>"
};

// chat_template.jinja, else chat_template of tokenizer_config.json (a string, or a list of named
// ones, of which "default" counts). Errors name the file and field.
[[nodiscard]] Result<TemplateFile> read_template_file(const std::filesystem::path& model_dir);

}  // namespace tandem::text
