// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "model/config_read.h"
#include "model/safetensors.h"

namespace tandem::model {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit
constexpr size_t kTensorsMax = 1U << 20U;
constexpr size_t kNameBytesMax = 1024;
constexpr size_t kRankMax = 8;

Error damaged(std::string_view file, std::string_view what) {
  return Error{ErrorCode::kDataLoss, fmt::format("{}: {}", file, what), std::string(file)};
}

// A name as an error shows it: a hostile file may hold a megabyte of anything there.
std::string shown(std::string_view name) {
  constexpr size_t kLengthMax = 120;
  std::string text;
  for (const char c : name.substr(0, kLengthMax)) {
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return name.size() > kLengthMax ? text + "…" : text;
}

struct Context {
  std::string_view file;
  std::string_view tensor;
  [[nodiscard]] Error error(std::string_view what, ErrorCode code = ErrorCode::kDataLoss) const {
    return Error{code, fmt::format("{}: tensor '{}' {}", file, shown(tensor), what),
                 std::string(file)};
  }
};

Result<DType> parse_dtype(const Context& context, std::string_view name) {
  constexpr std::array<std::pair<std::string_view, DType>, 10> kNames{{
      {"BF16", DType::kBf16},
      {"F32", DType::kF32},
      {"F16", DType::kF16},
      {"F64", DType::kF64},
      {"F8_E4M3", DType::kE4m3},
      {"F8_E8M0", DType::kE8m0},
      {"I64", DType::kI64},
      {"I32", DType::kI32},
      {"U8", DType::kU8},
      {"BOOL", DType::kBool},
  }};
  for (const auto& [known, dtype] : kNames) {
    if (name == known) return dtype;
  }
  return context.error(fmt::format("has unknown dtype '{}'", shown(name)), ErrorCode::kUnsupported);
}

Result<std::vector<int64_t>> parse_shape(const Context& context, simdjson::dom::array list) {
  if (list.size() > kRankMax) {
    return context.error(fmt::format("has {} dimensions, more than {}", list.size(), kRankMax));
  }
  std::vector<int64_t> shape;
  for (const simdjson::dom::element item : list) {
    int64_t extent = 0;
    if (item.get(extent) != simdjson::SUCCESS || extent < 0) {
      return context.error(fmt::format("has extent {} in its shape", quote_json(item)));
    }
    shape.push_back(extent);
  }
  return shape;
}

Result<std::pair<uint64_t, uint64_t>> parse_offsets(const Context& context,
                                                    simdjson::dom::array list) {
  std::array<uint64_t, 2> offsets{};
  if (list.size() != 2) {
    return context.error(fmt::format("has {} data_offsets, not 2", list.size()));
  }
  for (size_t i = 0; i < 2; ++i) {
    if (list.at(i).get(offsets[i]) != simdjson::SUCCESS) {
      return context.error(fmt::format("has data_offset {}", quote_json(list.at(i).value())));
    }
  }
  if (offsets[0] > offsets[1]) {
    return context.error(fmt::format("has reversed data_offsets {} > {}", offsets[0], offsets[1]));
  }
  return std::pair(offsets[0], offsets[1]);
}

// Bytes of a tensor by its shape; nothing on overflow.
std::optional<uint64_t> shape_bytes(const TensorInfo& info) {
  uint64_t bytes = dtype_bytes(info.dtype);
  for (const int64_t extent : info.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<TensorInfo> parse_tensor(const Context& context, simdjson::dom::element value) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return context.error("is not described by an object");
  TensorInfo info;
  bool has_dtype = false, has_shape = false, has_offsets = false;
  for (const simdjson::dom::key_value_pair field : object) {
    simdjson::dom::array list;
    if (field.key == "dtype") {
      std::string_view name;
      if (field.value.get(name) != simdjson::SUCCESS) return context.error("has no dtype name");
      info.dtype = TRY(parse_dtype(context, name));
      has_dtype = true;
    } else if (field.key == "shape") {
      if (field.value.get(list) != simdjson::SUCCESS) return context.error("has no list as shape");
      info.shape = TRY(parse_shape(context, list));
      has_shape = true;
    } else if (field.key == "data_offsets") {
      if (field.value.get(list) != simdjson::SUCCESS) {
        return context.error("has no list as data_offsets");
      }
      std::tie(info.begin, info.end) = TRY(parse_offsets(context, list));
      has_offsets = true;
    } else {
      return context.error(fmt::format("has unknown field '{}'", shown(field.key)));
    }
  }
  if (!has_dtype || !has_shape || !has_offsets) {
    return context.error("lacks dtype, shape or data_offsets");
  }
  const auto bytes = shape_bytes(info);
  if (!bytes) return context.error("has a shape whose size overflows");
  if (*bytes != info.end - info.begin) {
    return context.error(fmt::format("takes {} bytes by dtype and shape, {} by data_offsets",
                                     *bytes, info.end - info.begin));
  }
  return info;
}

Result<void> parse_metadata(std::string_view file, simdjson::dom::element value,
                            SafetensorsHeader& header) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return damaged(file, "__metadata__ is not an object");
  for (const simdjson::dom::key_value_pair field : object) {
    std::string_view text;
    if (field.value.get(text) != simdjson::SUCCESS) {
      return damaged(file, fmt::format("__metadata__ '{}' is not a string", shown(field.key)));
    }
    header.metadata.emplace(field.key, text);
  }
  return {};
}

// The tensors must tile the data section: in order, no hole, no overlap, no byte left over.
Result<void> check_tiling(std::string_view file, const SafetensorsHeader& header,
                          uint64_t data_bytes) {
  using Entry = std::pair<const std::string, TensorInfo>;
  std::vector<const Entry*> order;
  order.reserve(header.tensors.size());
  for (const Entry& entry : header.tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t expected = 0;
  for (const Entry* entry : order) {
    const Context context{file, entry->first};
    const TensorInfo& info = entry->second;
    if (info.begin < expected) {
      return context.error(fmt::format("overlaps the one before it at byte {}", info.begin));
    }
    if (info.begin > expected) {
      return context.error(
          fmt::format("begins at byte {} after a hole from {}", info.begin, expected));
    }
    if (info.end > data_bytes) {
      return context.error(
          fmt::format("ends at byte {} of {}: the file is truncated", info.end, data_bytes));
    }
    expected = info.end;
  }
  if (expected != data_bytes) {
    return damaged(file,
                   fmt::format("has {} extra bytes after the last tensor", data_bytes - expected));
  }
  return {};
}

// The JSON text inside `head`, after every check of its length.
Result<std::string_view> header_text(std::string_view head, uint64_t file_bytes,
                                     std::string_view file) {
  if (head.size() < kLengthBytes || file_bytes < kLengthBytes) {
    return damaged(file, "is shorter than the 8 bytes of a header length");
  }
  const uint64_t length = TRY(safetensors_header_bytes(head, file_bytes, file)) - kLengthBytes;
  if (head.size() - kLengthBytes < length) {
    return damaged(
        file, fmt::format("header of {} bytes is cut at {}", length, head.size() - kLengthBytes));
  }
  const std::string_view text = head.substr(kLengthBytes, length);
  if (text.front() != '{') return damaged(file, "header does not begin with '{'");
  return text;
}

}  // namespace

Result<uint64_t> safetensors_header_bytes(std::string_view head, uint64_t file_bytes,
                                          std::string_view file_name) {
  CHECK(head.size() >= kLengthBytes, "{} bytes", head.size());
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;)
    length = length << 8U | static_cast<unsigned char>(head[i]);
  if (length < 2 || length > kHeaderBytesMax) {
    return damaged(file_name,
                   fmt::format("header length {} is not in 2..{}", length, kHeaderBytesMax));
  }
  if (file_bytes < kLengthBytes || length > file_bytes - kLengthBytes) {
    return damaged(file_name, fmt::format("header length {} is larger than the file of {} bytes",
                                          length, file_bytes));
  }
  return kLengthBytes + length;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view head, uint64_t file_bytes,
                                                   std::string_view file_name) {
  const std::string_view text = TRY(header_text(head, file_bytes, file_name));
  const JsonDocument document = TRY(JsonDocument::parse(text, file_name));
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + text.size();
  for (const simdjson::dom::key_value_pair field : document.root()) {
    if (field.key == "__metadata__") {
      TRY(parse_metadata(file_name, field.value, header));
      continue;
    }
    const Context context{file_name, field.key};
    if (field.key.empty() || field.key.size() > kNameBytesMax) {
      return context.error(fmt::format("has a name of {} bytes", field.key.size()));
    }
    if (header.tensors.size() == kTensorsMax) {
      return damaged(file_name, fmt::format("holds more than {} tensors", kTensorsMax));
    }
    header.tensors.emplace(field.key, TRY(parse_tensor(context, field.value)));
  }
  TRY(check_tiling(file_name, header, file_bytes - header.data_offset));
  return header;
}

}  // namespace tandem::model
