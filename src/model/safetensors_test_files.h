// SPDX-License-Identifier: Apache-2.0
// For tests and benches: a temporary folder, and safetensors files written piece by piece, right or
// wrong on purpose.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "model/weights_plan.h"

namespace tandem::model {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem-model-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr, "{}", name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const {
    return path_ / name;
  }
  void write(std::string_view name, std::string_view text) const {
    std::ofstream out(path_ / name, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    CHECK(out.good(), "{}", name);
  }

 private:
  std::filesystem::path path_;
};

// "<8 bytes of length><json>": a file's head.
inline std::string safetensors_head(std::string_view json) {
  std::string head(8, '\0');
  const uint64_t length = json.size();
  for (size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(length >> 8 * i & 0xffU);
  return head.append(json);
}

struct TestTensor {
  std::string name;
  std::string dtype = "BF16";
  std::vector<int64_t> shape;
  std::string bytes;
};

inline std::string safetensors_file(const std::vector<TestTensor>& tensors) {
  std::vector<std::string> entries;
  std::string data;
  for (const TestTensor& t : tensors) {
    entries.push_back(fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  t.name, t.dtype, fmt::join(t.shape, ","), data.size(),
                                  data.size() + t.bytes.size()));
    data += t.bytes;
  }
  return safetensors_head(fmt::format("{{{}}}", fmt::join(entries, ","))).append(data);
}

// The stored tensors of a config, with random weights of `seed`.
inline std::vector<TestTensor> random_tensors(const ModelConfig& config, uint64_t seed) {
  const Weights source = random_weights(config, seed);
  WeightPlan plan = plan_weights(config, {.with_mtp = config.mtp_layers > 0});
  CHECK(plan.weights.storage.size() == source.storage.size());
  for (size_t i = 0; i < source.storage.size(); ++i) {
    std::memcpy(plan.weights.storage[i].data(), source.storage[i].data(),
                source.storage[i].bytes());
  }
  std::vector<TestTensor> tensors;
  for (const WeightSlot& slot : plan.slots) {
    tensors.push_back({.name = slot.name,
                       .shape = slot.shape,
                       .bytes = std::string(static_cast<const char*>(slot.data),
                                            static_cast<size_t>(slot.count()) * sizeof(bf16))});
  }
  return tensors;
}

}  // namespace tandem::model
