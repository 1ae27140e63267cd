// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "core/log.h"
#include "core/rng.h"
#include "model/weights_convert.h"
#include "model/weights_plan.h"

namespace tandem::model {
namespace {

constexpr size_t kChunkBytes = 1U << 20U;  // read, then scanned while it is still in the cache
constexpr uint64_t kProgressBytes = 64U << 20U;
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kMtpPrefix = "mtp.";

Error mismatch(std::string text, ErrorCode code = ErrorCode::kInvalidArgument) {
  return Error{code, std::move(text), "checkpoint"};
}

// At most eight names, then how many more.
std::string list_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  const size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<int64_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

// What stands before "layers.0." in the text model's names: "model." or "model.language_model.".
Result<std::string> find_prefix(const std::vector<std::string>& names) {
  constexpr std::string_view kFirst = "layers.0.input_layernorm.weight";
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name.ends_with(kFirst) && !name.starts_with(kMtpPrefix)) found.push_back(name);
  }
  if (found.empty()) return std::string("model.");  // the missing tensors are then named
  if (found.size() > 1) {
    return mismatch(fmt::format("checkpoint: more than one text model: {}", list_names(found)));
  }
  return found.front().substr(0, found.front().size() - kFirst.size());
}

Result<void> check_names(const ModelConfig& config, const std::vector<WeightSlot>& slots,
                         const std::vector<std::string>& stored) {
  std::vector<std::string> wanted, missing, unknown;
  wanted.reserve(slots.size());
  for (const WeightSlot& slot : slots) wanted.push_back(slot.name);
  std::sort(wanted.begin(), wanted.end());
  std::set_difference(wanted.begin(), wanted.end(), stored.begin(), stored.end(),
                      std::back_inserter(missing));
  std::set_difference(stored.begin(), stored.end(), wanted.begin(), wanted.end(),
                      std::back_inserter(unknown));
  if (config.tie_word_embeddings) std::erase(unknown, kHead);
  if (!unknown.empty()) {
    return mismatch(
        fmt::format("checkpoint: {} unknown tensors: {}", unknown.size(), list_names(unknown)));
  }
  if (!missing.empty()) {
    return mismatch(
        fmt::format("checkpoint: {} missing tensors: {}", missing.size(), list_names(missing)));
  }
  return {};
}

Result<void> check_slot(const WeightSlot& slot, const Checkpoint& checkpoint) {
  const TensorInfo& info = *checkpoint.find(slot.name);
  const std::string_view file = checkpoint.file_of(slot.name);
  if (!is_convertible_to_bf16(info.dtype)) {
    return mismatch(fmt::format("{}: tensor '{}' is stored as {}; bf16, f16 and f32 load", file,
                                slot.name, dtype_name(info.dtype)),
                    ErrorCode::kUnsupported);
  }
  if (info.shape != slot.shape) {
    return mismatch(fmt::format("{}: tensor '{}' has shape [{}], the config asks for [{}]", file,
                                slot.name, fmt::join(info.shape, ","), fmt::join(slot.shape, ",")));
  }
  return {};
}

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const WeightOptions& options, uint64_t total)
      : checkpoint_(checkpoint), options_(options), total_(total) {}

  Result<void> load(const WeightSlot& slot) {
    const TensorInfo& info = *checkpoint_.find(slot.name);
    const size_t size = dtype_bytes(info.dtype);
    const auto chunk = static_cast<int64_t>(kChunkBytes / size);
    auto* to = static_cast<bf16*>(slot.data);
    NonFinite bad;
    for (int64_t begin = 0; begin < slot.count(); begin += chunk) {
      const int64_t count = std::min(chunk, slot.count() - begin);
      const size_t bytes = static_cast<size_t>(count) * size;
      const bool convert = info.dtype != DType::kBf16;
      if (convert) staging_.resize(kChunkBytes);
      void* in = convert ? static_cast<void*>(staging_.data()) : to + begin;
      TRY(checkpoint_.read_part(slot.name, static_cast<uint64_t>(begin) * size, in, bytes));
      if (convert) convert_to_bf16(info.dtype, in, to + begin, count);
      if (options_.refuse_nan) find_non_finite(to + begin, count, begin, bad);
      advance(bytes);
    }
    if (bad.count > 0) {
      return mismatch(
          fmt::format(
              "{}: tensor '{}' holds {} values that are not finite, the first at element {}",
              checkpoint_.file_of(slot.name), slot.name, bad.count, bad.first),
          ErrorCode::kDataLoss);
    }
    converted_ += info.dtype != DType::kBf16 ? 1 : 0;
    return {};
  }

  [[nodiscard]] int64_t converted() const { return converted_; }

 private:
  void advance(size_t bytes) {
    done_ += bytes;
    if (options_.progress && (done_ - reported_ >= kProgressBytes || done_ == total_)) {
      reported_ = done_;
      options_.progress(done_, total_);
    }
  }

  const Checkpoint& checkpoint_;
  const WeightOptions& options_;
  uint64_t total_;
  uint64_t done_ = 0, reported_ = 0;
  int64_t converted_ = 0;
  std::vector<std::byte> staging_;
};

// Sequential within each file.
void sort_by_place(std::vector<WeightSlot>& slots, const Checkpoint& checkpoint) {
  std::sort(slots.begin(), slots.end(), [&](const WeightSlot& a, const WeightSlot& b) {
    return std::pair(checkpoint.file_of(a.name), checkpoint.find(a.name)->begin) <
           std::pair(checkpoint.file_of(b.name), checkpoint.find(b.name)->begin);
  });
}

// Standard deviation of a slot's random values; 1-d slots are norms and stand around 1.
float random_scale(const WeightSlot& slot, bool tied) {
  if (slot.shape.size() == 1) return 0.1F;
  const auto inputs = static_cast<float>(slot.shape[1]);
  if (slot.name.ends_with("embed_tokens.weight") && !tied) return 1.0F;
  // Twice the usual for logits and routing, so that their largest values stand apart.
  const bool logits = slot.name.ends_with("embed_tokens.weight") || slot.name == kHead ||
                      slot.name.ends_with("mlp.gate.weight");
  return (logits ? 2.0F : 1.0F) / std::sqrt(inputs);
}

// Nearly normal: the sum of four bytes. Random access, so no value depends on another slot.
void fill_random(const WeightSlot& slot, uint32_t slot_idx, uint64_t seed, float scale) {
  constexpr float kMean = 4 * 127.5F;
  const float unit = scale / std::sqrt(4 * 65535.0F / 12);
  const float center = slot.shape.size() == 1 ? 1.0F : 0.0F;
  const PhiloxKey key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  auto* out = static_cast<bf16*>(slot.data);
  const int64_t count = slot.count();
  for (int64_t i = 0; i < count; i += 4) {
    const auto block = static_cast<uint64_t>(i / 4);
    const auto words = philox4x32(
        {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), slot_idx, 0}, key);
    for (int64_t k = i; k < std::min(i + 4, count); ++k) {
      const uint32_t w = words[static_cast<size_t>(k - i)];
      const uint32_t sum = (w & 255U) + (w >> 8U & 255U) + (w >> 16U & 255U) + (w >> 24U);
      out[k] = bf16(center + unit * (static_cast<float>(sum) - kMean));
    }
  }
}

}  // namespace

Result<Weights> load_weights(const ModelConfig& config, const Checkpoint& checkpoint,
                             const WeightOptions& options) {
  const std::vector<std::string> stored = checkpoint.names();
  const std::string prefix = TRY(find_prefix(stored));
  const bool with_mtp = std::any_of(stored.begin(), stored.end(), [](const std::string& name) {
    return name.starts_with(kMtpPrefix);
  });
  PlanOptions wanted{.prefix = prefix, .with_mtp = with_mtp, .allocate = false};
  uint64_t total = 0;
  {
    const WeightPlan names_only = plan_weights(config, wanted);
    TRY(check_names(config, names_only.slots, stored));
    for (const WeightSlot& slot : names_only.slots) {
      TRY(check_slot(slot, checkpoint));
      const TensorInfo& info = *checkpoint.find(slot.name);
      total += info.end - info.begin;
    }
  }
  wanted.allocate = true;
  WeightPlan plan = plan_weights(config, wanted);
  sort_by_place(plan.slots, checkpoint);
  Loader loader(checkpoint, options, total);
  for (const WeightSlot& slot : plan.slots) TRY(loader.load(slot));
  TRY(checkpoint.check_unchanged());
  if (loader.converted() > 0) {
    log::info("{} of {} tensors were stored as f32 or f16 and are rounded to bf16",
              loader.converted(), plan.slots.size());
  }
  return std::move(plan.weights);
}

Weights random_weights(const ModelConfig& config, uint64_t seed) {
  WeightPlan plan = plan_weights(config, {.with_mtp = config.mtp_layers > 0});
  uint32_t slot_idx = 0;
  for (const WeightSlot& slot : plan.slots) {
    fill_random(slot, slot_idx++, seed, random_scale(slot, config.tie_word_embeddings));
  }
  return std::move(plan.weights);
}

}  // namespace tandem::model
