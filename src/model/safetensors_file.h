// SPDX-License-Identifier: Apache-2.0
// Files of a model folder, opened by name relative to the folder and read by position. The loaders
// of config and weights call it. Never mapped: a file that shrinks gives an error and no SIGBUS.
//
// Only regular files open. A symbolic link may point anywhere, also out of the folder, because the
// Hugging Face cache stores each file of a model as a link to a blob beside the folder; what it
// points to must be a regular file. Names that come out of a file (a shard in the index) are single
// components: no '/', no "..".
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"

namespace tandem::model {

// An open file descriptor, closed with the object.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  ~FileHandle();
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// kNotFound where `dir` is missing or no folder.
Result<FileHandle> open_folder(const std::filesystem::path& dir);

// What identifies the content of an open file; compared before and after reading.
struct FileStamp {
  uint64_t bytes = 0;
  dev_t device = 0;
  ino_t inode = 0;
  int64_t modified_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

struct OpenFile {
  FileHandle handle;
  FileStamp stamp;
};

// kNotFound where there is no such file; kInvalidArgument where it is no regular file or can't be
// read.
Result<OpenFile> open_regular(const FileHandle& folder, const std::string& name);

Result<FileStamp> stamp_of(const FileHandle& file, std::string_view name);

// Exactly `bytes` bytes from `offset`; kDataLoss where the file ends before.
Result<void> read_exactly(const FileHandle& file, std::string_view name, uint64_t offset, void* out,
                          size_t bytes);

// A whole small file, or nothing where it does not exist; kTooLarge over `bytes_max`.
Result<std::optional<std::string>> read_small_file(const FileHandle& folder,
                                                   const std::string& name, uint64_t bytes_max);

// True for a name that can only mean a file directly inside the folder.
[[nodiscard]] bool is_plain_file_name(std::string_view name);

}  // namespace tandem::model
