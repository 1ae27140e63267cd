// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tandem::model {
namespace {

Error file_error(ErrorCode code, std::string_view name, std::string_view what) {
  return Error{code, fmt::format("{}: {}", name, what), std::string(name)};
}

Error system_error(std::string_view name, int number) {
  const ErrorCode code =
      number == ENOENT || number == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument;
  return file_error(code, name, std::strerror(number));
}

int open_retried(int folder, const char* name, int flags) {
  int fd = -1;
  do {
    fd = ::openat(folder, name, flags);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

FileStamp make_stamp(const struct stat& info) {
  return {.bytes = static_cast<uint64_t>(info.st_size),
          .device = info.st_dev,
          .inode = info.st_ino,
          .modified_ns =
              static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

Result<FileHandle> open_folder(const std::filesystem::path& dir) {
  FileHandle folder(open_retried(AT_FDCWD, dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.fd() < 0) return system_error(dir.string(), errno);
  return folder;
}

Result<OpenFile> open_regular(const FileHandle& folder, const std::string& name) {
  // Looked at first: opening a device can already do something to it. Looked at again once open,
  // since the name may have changed hands in between; O_NONBLOCK keeps a FIFO from holding us.
  struct stat info {};
  if (::fstatat(folder.fd(), name.c_str(), &info, 0) != 0) return system_error(name, errno);
  if (!S_ISREG(info.st_mode)) {
    return file_error(ErrorCode::kInvalidArgument, name, "is not a regular file");
  }
  OpenFile file{.handle = FileHandle(open_retried(folder.fd(), name.c_str(),
                                                  O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)),
                .stamp = {}};
  if (file.handle.fd() < 0) return system_error(name, errno);
  if (::fstat(file.handle.fd(), &info) != 0) return system_error(name, errno);
  if (!S_ISREG(info.st_mode)) {
    return file_error(ErrorCode::kInvalidArgument, name, "is not a regular file");
  }
  file.stamp = make_stamp(info);
  return file;
}

Result<FileStamp> stamp_of(const FileHandle& file, std::string_view name) {
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) return system_error(name, errno);
  return make_stamp(info);
}

Result<void> read_exactly(const FileHandle& file, std::string_view name, uint64_t offset, void* out,
                          size_t bytes) {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(file.fd(), to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(name, errno);
    if (got == 0) {
      return file_error(ErrorCode::kDataLoss, name,
                        fmt::format("ends at byte {}, {} bytes early", offset, bytes));
    }
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return {};
}

Result<std::optional<std::string>> read_small_file(const FileHandle& folder,
                                                   const std::string& name, uint64_t bytes_max) {
  Result<OpenFile> file = open_regular(folder, name);
  if (!file.ok()) {
    if (file.error().code == ErrorCode::kNotFound) return std::optional<std::string>();
    return std::move(file).error();
  }
  const uint64_t bytes = file->stamp.bytes;
  if (bytes > bytes_max) {
    return file_error(ErrorCode::kTooLarge, name,
                      fmt::format("has {} bytes, more than the {} allowed", bytes, bytes_max));
  }
  std::string text(bytes, '\0');
  TRY(read_exactly(file->handle, name, 0, text.data(), text.size()));
  return std::optional<std::string>(std::move(text));
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace tandem::model
