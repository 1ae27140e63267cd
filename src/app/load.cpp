// SPDX-License-Identifier: Apache-2.0
#include "app/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/progress.h"
#include "core/log.h"
#include "model/safetensors.h"
#include "model/weights.h"

namespace tandem::app {
namespace {

Result<void> check_folder(const std::filesystem::path& dir) {
  std::error_code ignored;
  if (std::filesystem::is_directory(dir, ignored)) return {};
  return Error{ErrorCode::kNotFound, fmt::format("model folder '{}' does not exist", dir.string()),
               dir.string()};
}

bool has_template(const std::filesystem::path& dir) {
  std::error_code ignored;
  return std::filesystem::exists(dir / "chat_template.jinja", ignored) ||
         std::filesystem::exists(dir / "tokenizer_config.json", ignored);
}

}  // namespace

Result<LoadedText> load_text(const std::filesystem::path& model_dir) {
  TRY(check_folder(model_dir));
  LoadedText loaded;
  loaded.config = TRY(model::load_config(model_dir));
  loaded.defaults = TRY(model::load_generation_defaults(model_dir));
  loaded.tokenizer =
      std::make_unique<text::Tokenizer>(TRY(text::Tokenizer::load(model_dir / "tokenizer.json")));
  if (loaded.tokenizer->vocab_size() > loaded.config.vocab) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("tokenizer.json has ids up to {}, but config.json says vocab_size {}",
                             loaded.tokenizer->vocab_size() - 1, loaded.config.vocab),
                 "tokenizer.json"};
  }
  if (has_template(model_dir)) {
    loaded.chat_template = TRY(
        text::ChatTemplate::open(model_dir, loaded.tokenizer->special_strings(), {.helpers = 2}));
  } else {
    log::warn("{} has no chat template: /v1/chat/completions is off", model_dir.string());
  }
  loaded.eos_ids = loaded.config.eos_ids;
  // Base checkpoints name <|endoftext|> alone, yet a chat turn ends with <|im_end|>.
  if (const auto id = loaded.tokenizer->find_added("<|im_end|>"); id && loaded.chat_template) {
    loaded.eos_ids.push_back(*id);
  }
  std::sort(loaded.eos_ids.begin(), loaded.eos_ids.end());
  loaded.eos_ids.erase(std::unique(loaded.eos_ids.begin(), loaded.eos_ids.end()),
                       loaded.eos_ids.end());
  return loaded;
}

Result<model::Model> load_model(const std::filesystem::path& model_dir,
                                const model::ModelConfig& config, const Exec& exec, bool quiet) {
  TRY(model::Model::supports(config));
  Progress progress("loading weights", quiet);
  const model::Checkpoint checkpoint = TRY(model::Checkpoint::open(model_dir));
  const model::Weights weights = TRY(model::load_weights(
      config, checkpoint,
      {.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); }}));
  progress.finish(
      fmt::format("{:.1f} MB from {} file{}", static_cast<double>(checkpoint.bytes_read()) * 1e-6,
                  checkpoint.shards().size(), checkpoint.shards().size() == 1 ? "" : "s"));
  Progress packing("packing weights for this machine", quiet);
  model::Model loaded = model::Model::create(config, weights, exec);
  packing.finish("done");
  return loaded;
}

}  // namespace tandem::app
