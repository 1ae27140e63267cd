// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes as the head of a safetensors file. A header that is accepted must hold what
// it promises.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "model/safetensors.h"

namespace {

// The first byte says how long the file claims to be beyond the input: exact, short or longer.
void check_header(std::string_view head, uint64_t file_bytes) {
  const auto header = tandem::model::parse_safetensors_header(head, file_bytes, "fuzz.safetensors");
  if (!header.ok()) {
    CHECK(header.error().text.find("fuzz.safetensors") != std::string::npos, "{}",
          header.error().text);
    return;
  }
  CHECK(header->data_offset <= file_bytes);
  uint64_t bytes = 0;
  for (const auto& [name, info] : header->tensors) {
    CHECK(info.begin <= info.end && info.end <= file_bytes - header->data_offset, "{}", name);
    uint64_t expected = tandem::dtype_bytes(info.dtype);
    for (const int64_t extent : info.shape) expected *= static_cast<uint64_t>(extent);
    CHECK(expected == info.end - info.begin, "{}", name);
    bytes += info.end - info.begin;
  }
  CHECK(bytes == file_bytes - header->data_offset, "{} of {}", bytes, file_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view head(reinterpret_cast<const char*>(data) + 1, size - 1);
  check_header(head, head.size());
  check_header(head, head.size() + data[0]);
  if (head.size() > data[0]) check_header(head, head.size() - data[0]);
  return 0;
}
