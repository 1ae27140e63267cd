// SPDX-License-Identifier: Apache-2.0
// Reads safetensors checkpoints, single or sharded, with every check before a byte is used.
// model/weights calls it; so do tests, for their golden files. Source: the safetensors format
// description of Hugging Face; docs/model-files.md lists what is refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"

namespace tandem::model {

struct TensorInfo {
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data section
};

struct SafetensorsHeader {
  std::map<std::string, TensorInfo, std::less<>> tensors;
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // of the data section in the file
};

// Bytes of the length field and the header together, from the file's first 8 bytes. kDataLoss where
// the length can't be right.
Result<uint64_t> safetensors_header_bytes(std::string_view head, uint64_t file_bytes,
                                          std::string_view file_name);

// Checks the header alone: `head` is the file's first bytes (8 + header length), `file_bytes` its
// size. The tensors must tile the data section exactly. kDataLoss for a damaged header,
// kUnsupported for a dtype that we don't know; the text names the file and the tensor.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view head, uint64_t file_bytes,
                                                   std::string_view file_name);

// A folder's checkpoint: model.safetensors, or model.safetensors.index.json with its shards.
// Files are opened relative to the folder, regular files only, read with pread: a file that shrinks
// gives an error and no SIGBUS. Index and shards must agree on every tensor. Reads may run on
// several threads.
class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::filesystem::path& model_dir);
  static Result<Checkpoint> open_file(const std::filesystem::path& safetensors_file);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  struct Shard {
    std::string file_name;
    uint64_t bytes = 0;
    size_t tensor_count = 0;
  };
  [[nodiscard]] const std::vector<Shard>& shards() const;
  [[nodiscard]] std::vector<std::string> names() const;               // sorted
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;  // null if absent
  [[nodiscard]] std::string_view file_of(std::string_view name) const;

  // Reads a whole tensor into `out` (exactly its size), or `count` bytes from `offset` of it.
  [[nodiscard]] Result<void> read(std::string_view name, void* out, size_t bytes) const;
  [[nodiscard]] Result<void> read_part(std::string_view name, uint64_t offset, void* out,
                                       size_t bytes) const;
  [[nodiscard]] uint64_t bytes_read() const;
  // kDataLoss where a file was written to since it was opened: what was read may be of two
  // versions.
  [[nodiscard]] Result<void> check_unchanged() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem::model
