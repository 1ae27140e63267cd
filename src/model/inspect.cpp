// SPDX-License-Identifier: Apache-2.0
#include "model/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/check.h"
#include "model/weights_plan.h"

namespace tandem::model {
namespace {

constexpr uint64_t kGb = 1'000'000'000;
constexpr int64_t kWeightBytes = sizeof(bf16);

int64_t element_count(const TensorInfo& info) {
  int64_t count = 1;
  for (const int64_t extent : info.shape) count *= extent;
  return count;
}

// A token reads K of a layer's E experts and everything else. The whole embedding is counted, of
// which it reads one row, as published figures do.
int64_t active_parameters(const ModelConfig& c) {
  const int64_t expert = int64_t{3} * c.hidden * c.moe_intermediate;
  const auto moe_layers = std::count(c.layer_is_moe.begin(), c.layer_is_moe.end(), true);
  return c.parameter_count() - moe_layers * (c.experts - c.experts_per_token) * expert;
}

Fit fit_into(const MemoryPlace& place, const ModelReport& report, const FitOptions& options) {
  Fit fit{.place = place};
  const auto usable =
      static_cast<uint64_t>(static_cast<double>(place.bytes) * options.usable_share);
  fit.weights_fit = report.weight_bytes <= usable;
  if (!fit.weights_fit) return fit;
  const auto page_bytes =
      static_cast<uint64_t>(report.kv_bytes_per_token) * static_cast<uint64_t>(options.page_tokens);
  const uint64_t pages = (usable - report.weight_bytes) / page_bytes;
  fit.kv_tokens = static_cast<int64_t>(pages) * options.page_tokens;
  fit.full_contexts = fit.kv_tokens / report.config.max_position;
  return fit;
}

std::string show_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 || value >= 100 ? 0 : 1, kUnits[unit]);
}

std::string show_count(int64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.2f} B", static_cast<double>(count) * 1e-9);
  return fmt::format("{:.2f} M", static_cast<double>(count) * 1e-6);
}

void add_config(const ModelConfig& c, std::string& out) {
  const auto line = [&](std::string_view name, const std::string& value) {
    out += fmt::format("  {:<16}{}\n", name, value);
  };
  const auto moe_layers = std::count(c.layer_is_moe.begin(), c.layer_is_moe.end(), true);
  line("family", c.family == Family::kQwen3Moe ? "qwen3_moe" : "qwen3");
  line("layers", fmt::format("{}, {} with experts", c.layers, moe_layers));
  line("hidden", std::to_string(c.hidden));
  line("attention",
       fmt::format("{} query heads, {} KV heads, head_dim {}", c.q_heads, c.kv_heads, c.head_dim));
  if (moe_layers > 0) {
    line("experts", fmt::format("{}, {} per token, {} wide", c.experts, c.experts_per_token,
                                c.moe_intermediate));
  }
  if (moe_layers < c.layers) line("dense MLP", fmt::format("{} wide", c.intermediate));
  line("vocabulary", fmt::format("{}{}", c.vocab, c.tie_word_embeddings ? ", tied head" : ""));
  line("positions", fmt::format("{}, rope theta {}{}", c.max_position, c.rope.theta,
                                c.rope.yarn ? fmt::format(", yarn x{}", c.rope.yarn_factor) : ""));
  line("end tokens", fmt::format("{}", fmt::join(c.eos_ids, ", ")));
}

void add_fits(const ModelReport& report, std::string& out) {
  for (const Fit& fit : report.fits) {
    out += fmt::format("  {:<16}{:>9}  ", fit.place.name, show_bytes(fit.place.bytes));
    out += fit.weights_fit
               ? fmt::format("{} KV tokens, {} full contexts\n", fit.kv_tokens, fit.full_contexts)
               : std::string("weights do not fit\n");
  }
}

}  // namespace

std::vector<MemoryPlace> common_gpus() {
  return {{"80 GB GPU", 80 * kGb}, {"141 GB GPU", 141 * kGb}, {"180 GB GPU", 180 * kGb}};
}

ModelReport inspect(const ModelConfig& config, const Checkpoint& checkpoint,
                    const FitOptions& options) {
  CHECK(options.page_tokens > 0 && options.usable_share > 0 && options.usable_share <= 1, "{} {}",
        options.page_tokens, options.usable_share);
  ModelReport report{.config = config, .shards = checkpoint.shards()};
  for (const Checkpoint::Shard& shard : report.shards) report.file_bytes += shard.bytes;
  for (const std::string& name : checkpoint.names()) {
    const TensorInfo& info = *checkpoint.find(name);
    ++report.tensor_count;
    report.stored_weight_bytes += info.end - info.begin;
    if (name.starts_with("mtp.")) report.mtp_parameters += element_count(info);
  }
  report.parameters = config.parameter_count();
  report.active_parameters = active_parameters(config);
  report.weight_bytes =
      static_cast<uint64_t>((report.parameters + report.mtp_parameters) * kWeightBytes);
  const int64_t layer_kv_bytes = config.kv_bytes_per_token() / config.layers;
  report.kv_bytes_per_token =
      config.kv_bytes_per_token() + (report.mtp_parameters > 0 ? layer_kv_bytes : 0);
  for (const MemoryPlace& place : options.places) {
    report.fits.push_back(fit_into(place, report, options));
  }
  return report;
}

std::string to_text(const ModelReport& r) {
  std::string out = fmt::format("{}\n", r.config.name);
  add_config(r.config, out);
  out += fmt::format("\ncheckpoint        {} tensors in {} files, {}\n", r.tensor_count,
                     r.shards.size(), show_bytes(r.file_bytes));
  for (const Checkpoint::Shard& shard : r.shards) {
    out += fmt::format("  {:<44}{:>9}  {} tensors\n", shard.file_name, show_bytes(shard.bytes),
                       shard.tensor_count);
  }
  out += fmt::format("\nparameters        {}, {} active per token", show_count(r.parameters),
                     show_count(r.active_parameters));
  out += r.mtp_parameters > 0 ? fmt::format("; MTP {}\n", show_count(r.mtp_parameters))
                              : "; no MTP layer\n";
  out += fmt::format("weights           {} as bf16\n", show_bytes(r.weight_bytes));
  out += fmt::format("KV cache          {} bytes per token as bf16\n", r.kv_bytes_per_token);
  if (!r.fits.empty()) out += "\nwhat would fit\n";
  add_fits(r, out);
  return out;
}

}  // namespace tandem::model
