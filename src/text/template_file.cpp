// SPDX-License-Identifier: Apache-2.0
#include "text/template_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

#include "text/utf8.h"

namespace tandem::text {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kTemplateBytesMax = size_t{1} << 20;
constexpr size_t kConfigBytesMax = size_t{16} << 20;

// nullopt: there is no such file.
Result<std::optional<std::string>> read_file(const std::filesystem::path& path, size_t bytes_max) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return std::optional<std::string>();
  const auto bytes = std::filesystem::file_size(path, code);
  if (code || bytes > bytes_max) {
    return Error{ErrorCode::kTooLarge,
                 fmt::format("{}: more than {} bytes", path.string(), bytes_max), path.string()};
  }
  std::string text(bytes, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes))) {
    return Error{ErrorCode::kDataLoss, fmt::format("{}: can't be read", path.string()),
                 path.string()};
  }
  if (!is_valid_utf8(text)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: is not UTF-8", path.string()),
                 path.string()};
  }
  return std::optional<std::string>(std::move(text));
}

// A token is a string, or an object with its string in `content`.
std::optional<std::string> token_of(object config, std::string_view key) {
  element value;
  object token;
  std::string_view text;
  if (config[key].get(value) != simdjson::SUCCESS) return std::nullopt;
  if (value.get(text) == simdjson::SUCCESS) return std::string(text);
  if (value.get(token) == simdjson::SUCCESS && token["content"].get(text) == simdjson::SUCCESS) {
    return std::string(text);
  }
  return std::nullopt;
}

std::optional<std::string> template_of(object config) {
  element value;
  std::string_view text;
  if (config["chat_template"].get(value) != simdjson::SUCCESS) return std::nullopt;
  if (value.get(text) == simdjson::SUCCESS) return std::string(text);
  simdjson::dom::array named;
  if (value.get(named) != simdjson::SUCCESS) return std::nullopt;
  for (const element entry : named) {
    object one;
    std::string_view name;
    if (entry.get(one) == simdjson::SUCCESS && one["name"].get(name) == simdjson::SUCCESS &&
        name == "default" && one["template"].get(text) == simdjson::SUCCESS) {
      return std::string(text);
    }
  }
  return std::nullopt;
}

}  // namespace

Result<TemplateFile> read_template_file(const std::filesystem::path& model_dir) {
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  const std::filesystem::path jinja_path = model_dir / "chat_template.jinja";
  const std::optional<std::string> jinja = TRY(read_file(jinja_path, kTemplateBytesMax));
  const std::optional<std::string> config_text = TRY(read_file(config_path, kConfigBytesMax));
  TemplateFile file;
  simdjson::dom::parser parser;
  object config;
  if (config_text) {
    const simdjson::error_code code = parser.parse(*config_text).get(config);
    if (code != simdjson::SUCCESS) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}: is not a JSON object: {}", config_path.string(),
                               simdjson::error_message(code)),
                   config_path.string()};
    }
    for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
      if (auto token = token_of(config, key)) file.variables.emplace_back(key, std::move(*token));
    }
  }
  std::optional<std::string> source = jinja;
  if (!source && config_text) source = template_of(config);
  if (!source) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("no chat template: neither {} nor chat_template in {}",
                             jinja_path.string(), config_path.string()),
                 jinja_path.string()};
  }
  if (source->size() > kTemplateBytesMax) {
    return Error{ErrorCode::kTooLarge,
                 fmt::format("{}: chat_template has more than {} bytes", config_path.string(),
                             kTemplateBytesMax),
                 config_path.string()};
  }
  file.path = jinja ? jinja_path : config_path;
  file.source = std::move(*source);
  return file;
}

}  // namespace tandem::text
