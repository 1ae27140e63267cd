// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "model/config_read.h"
#include "model/safetensors_file.h"

namespace tandem::model {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr uint64_t kIndexBytesMax = 100'000'000;
constexpr size_t kShardsMax = 1024;  // each stays open: one file descriptor

struct ShardFile {
  std::string name;
  OpenFile file;
  uint64_t data_offset = 0;
};

struct Entry {
  TensorInfo info;
  size_t shard_idx = 0;
};

using WeightMap = std::map<std::string, std::string, std::less<>>;  // tensor -> shard

Error index_error(std::string_view what, ErrorCode code = ErrorCode::kDataLoss) {
  return Error{code, fmt::format("{}: {}", kIndexFile, what), kIndexFile};
}

Result<SafetensorsHeader> read_header(const ShardFile& shard) {
  constexpr size_t kLengthBytes = 8;
  const uint64_t file_bytes = shard.file.stamp.bytes;
  std::string head(kLengthBytes, '\0');
  if (file_bytes < kLengthBytes) return parse_safetensors_header("", file_bytes, shard.name);
  TRY(read_exactly(shard.file.handle, shard.name, 0, head.data(), head.size()));
  const uint64_t head_bytes = TRY(safetensors_header_bytes(head, file_bytes, shard.name));
  head.resize(head_bytes);
  TRY(read_exactly(shard.file.handle, shard.name, 0, head.data(), head.size()));
  return parse_safetensors_header(head, file_bytes, shard.name);
}

Result<WeightMap> parse_index(std::string_view text) {
  const JsonDocument document = TRY(JsonDocument::parse(text, kIndexFile));
  const FieldReader root(document.root(), kIndexFile);
  const auto field = root.find("weight_map");
  simdjson::dom::object map;
  if (!field || field->get(map) != simdjson::SUCCESS) {
    return root.error(ErrorCode::kDataLoss, "weight_map", "is no object");
  }
  WeightMap weight_map;
  for (const simdjson::dom::key_value_pair pair : map) {
    std::string_view shard;
    if (pair.value.get(shard) != simdjson::SUCCESS || !is_plain_file_name(shard) ||
        !shard.ends_with(".safetensors")) {
      return index_error(fmt::format("tensor '{}' has shard {}, which is no name of a .safetensors "
                                     "file in this folder",
                                     pair.key, quote_json(pair.value)),
                         ErrorCode::kInvalidArgument);
    }
    weight_map.emplace(pair.key, shard);
  }
  if (weight_map.empty()) return index_error("weight_map is empty");
  return weight_map;
}

// "model-00001-of-00004.safetensors": a shard by its name, so it must be in the index.
bool looks_like_shard(std::string_view name) {
  return name.starts_with("model-") && name.ends_with(".safetensors");
}

// Shards that lie in the folder and that the index does not name: a mixture of two checkpoints.
Result<void> refuse_stray_shards(const std::filesystem::path& dir,
                                 const std::vector<std::string>& known) {
  std::error_code code;
  std::filesystem::directory_iterator it(dir, code);
  for (; !code && it != std::filesystem::directory_iterator(); it.increment(code)) {
    const std::string name = it->path().filename().string();
    if (looks_like_shard(name) && !std::binary_search(known.begin(), known.end(), name)) {
      return index_error(fmt::format("does not name shard '{}', which lies in the folder", name));
    }
  }
  if (code) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", dir.string(), code.message()),
                 dir.string()};
  }
  return {};
}

}  // namespace

struct Checkpoint::State {
  std::vector<ShardFile> files;
  std::vector<Shard> shards;
  std::map<std::string, Entry, std::less<>> tensors;
  mutable std::atomic<uint64_t> bytes_read{0};

  [[nodiscard]] const Entry* find(std::string_view name) const {
    const auto at = tensors.find(name);
    return at == tensors.end() ? nullptr : &at->second;
  }

  // Opens a shard and takes in its tensors. `index`, where there is one, must agree on each.
  Result<void> add_shard(const FileHandle& folder, const std::string& name, const WeightMap* index);
  // After all shards: every tensor of the index was found.
  [[nodiscard]] Result<void> check_index_is_covered(const WeightMap& index) const;
};

Result<void> Checkpoint::State::add_shard(const FileHandle& folder, const std::string& name,
                                          const WeightMap* index) {
  Result<OpenFile> opened = open_regular(folder, name);
  if (!opened.ok()) {
    if (index != nullptr && opened.error().code == ErrorCode::kNotFound) {
      return index_error(fmt::format("names shard '{}', which is missing", name));
    }
    return std::move(opened).error();
  }
  ShardFile shard{.name = name, .file = std::move(opened).value(), .data_offset = 0};
  SafetensorsHeader header = TRY(read_header(shard));
  shard.data_offset = header.data_offset;
  shards.push_back(
      {.file_name = name, .bytes = shard.file.stamp.bytes, .tensor_count = header.tensors.size()});
  for (auto& [tensor, info] : header.tensors) {
    if (index != nullptr) {
      const auto at = index->find(tensor);
      if (at == index->end() || at->second != name) {
        return index_error(
            fmt::format("does not place tensor '{}' in '{}', which holds it", tensor, name));
      }
    }
    tensors.emplace(tensor, Entry{.info = std::move(info), .shard_idx = files.size()});
  }
  files.push_back(std::move(shard));
  return {};
}

Result<void> Checkpoint::State::check_index_is_covered(const WeightMap& index) const {
  for (const auto& [tensor, shard] : index) {
    if (find(tensor) == nullptr) {
      return index_error(fmt::format("places tensor '{}' in '{}', which lacks it", tensor, shard));
    }
  }
  return {};
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& model_dir) {
  const FileHandle folder = TRY(open_folder(model_dir));
  auto state = std::make_unique<State>();
  const auto index_text = TRY(read_small_file(folder, kIndexFile, kIndexBytesMax));
  if (!index_text) {
    TRY(state->add_shard(folder, kSingleFile, nullptr));
    return Checkpoint(std::move(state));
  }
  if (Result<OpenFile> both = open_regular(folder, kSingleFile);
      both.ok() || both.error().code != ErrorCode::kNotFound) {
    return index_error(fmt::format("stands beside {}: which of the two is meant?", kSingleFile),
                       ErrorCode::kInvalidArgument);
  }
  const WeightMap index = TRY(parse_index(*index_text));
  std::vector<std::string> names;
  for (const auto& [tensor, shard] : index) names.push_back(shard);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.size() > kShardsMax) {
    return index_error(fmt::format("names {} shards, more than {}", names.size(), kShardsMax),
                       ErrorCode::kTooLarge);
  }
  TRY(refuse_stray_shards(model_dir, names));
  for (const std::string& name : names) TRY(state->add_shard(folder, name, &index));
  TRY(state->check_index_is_covered(index));
  return Checkpoint(std::move(state));
}

Result<Checkpoint> Checkpoint::open_file(const std::filesystem::path& safetensors_file) {
  const std::filesystem::path parent = safetensors_file.parent_path();
  const FileHandle folder = TRY(open_folder(parent.empty() ? "." : parent));
  auto state = std::make_unique<State>();
  TRY(state->add_shard(folder, safetensors_file.filename().string(), nullptr));
  return Checkpoint(std::move(state));
}

const std::vector<Checkpoint::Shard>& Checkpoint::shards() const {
  return state_->shards;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(state_->tensors.size());
  for (const auto& [name, entry] : state_->tensors) names.push_back(name);
  return names;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const Entry* entry = state_->find(name);
  return entry == nullptr ? nullptr : &entry->info;
}

std::string_view Checkpoint::file_of(std::string_view name) const {
  const Entry* entry = state_->find(name);
  return entry == nullptr ? std::string_view() : state_->files[entry->shard_idx].name;
}

Result<void> Checkpoint::read(std::string_view name, void* out, size_t bytes) const {
  const Entry* entry = state_->find(name);
  CHECK(entry != nullptr && entry->info.end - entry->info.begin == bytes, "{}: {} bytes", name,
        bytes);
  return read_part(name, 0, out, bytes);
}

Result<void> Checkpoint::read_part(std::string_view name, uint64_t offset, void* out,
                                   size_t bytes) const {
  const Entry* entry = state_->find(name);
  CHECK(entry != nullptr, "{}", name);
  const uint64_t size = entry->info.end - entry->info.begin;
  CHECK(offset <= size && bytes <= size - offset, "{}: {}+{} of {}", name, offset, bytes, size);
  const ShardFile& shard = state_->files[entry->shard_idx];
  TRY(read_exactly(shard.file.handle, shard.name, shard.data_offset + entry->info.begin + offset,
                   out, bytes));
  state_->bytes_read.fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

uint64_t Checkpoint::bytes_read() const {
  return state_->bytes_read.load(std::memory_order_relaxed);
}

Result<void> Checkpoint::check_unchanged() const {
  for (const ShardFile& shard : state_->files) {
    const FileStamp now = TRY(stamp_of(shard.file.handle, shard.name));
    if (now != shard.file.stamp) {
      return Error{ErrorCode::kDataLoss,
                   fmt::format("{}: was changed while it was read ({} bytes before, {} now)",
                               shard.name, shard.file.stamp.bytes, now.bytes),
                   shard.name};
    }
  }
  return {};
}

}  // namespace tandem::model
