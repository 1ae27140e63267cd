// SPDX-License-Identifier: Apache-2.0
// tandem inspect: what a checkpoint holds and where it would fit, from its headers alone.
#include "model/inspect.h"

#include <fmt/format.h>
#include <unistd.h>

#include "app/commands.h"
#include "model/config.h"
#include "model/safetensors.h"

namespace tandem::app {
namespace {

uint64_t machine_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0
             ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes)
             : 0;
}

Result<std::string> inspect(const InspectFlags& flags) {
  const model::ModelConfig config = TRY(model::load_config(flags.model_dir));
  const model::Checkpoint checkpoint = TRY(model::Checkpoint::open(flags.model_dir));
  model::FitOptions options{.page_tokens = flags.page_tokens};
  options.places = {{"this machine", machine_bytes()}};
  for (const model::MemoryPlace& gpu : model::common_gpus()) options.places.push_back(gpu);
  return model::to_text(model::inspect(config, checkpoint, options));
}

}  // namespace

int run_inspect(const InspectFlags& flags) {
  const Result<std::string> text = inspect(flags);
  if (!text.ok()) return fail_start(text.error());
  fmt::print("{}", text.value());
  return 0;
}

}  // namespace tandem::app
