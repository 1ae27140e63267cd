// SPDX-License-Identifier: Apache-2.0
#include "serve/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace tandem::serve {
namespace {

using ElementType = simdjson::dom::element_type;

constexpr size_t kFewFields = 12;  // up to here comparing all pairs beats sorting

// A key that stands twice, or nothing. Sorts `keys` where they are many.
std::optional<std::string_view> find_duplicate(std::vector<std::string_view>& keys) {
  if (keys.size() <= kFewFields) {
    for (size_t i = 1; i < keys.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (keys[i] == keys[j]) return keys[i];
      }
    }
    return std::nullopt;
  }
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  return twice == keys.end() ? std::nullopt : std::optional(*twice);
}

// A client's key as a part of `param`: only if it looks like the name of a field.
std::string shown_key(std::string_view key) {
  const bool plain = std::all_of(key.begin(), key.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
  return plain && !key.empty() && key.size() <= 64 ? std::string(key) : "?";
}

// Prefixes the path of an error that happened further inside.
Error inside(std::string outer, Error error) {
  const bool dot = !error.param.empty() && error.param[0] != '[';
  error.param = std::move(outer) + (dot ? "." : "") + error.param;
  return error;
}

// Walks the whole value: keys unique and short, in every object. The recursion is bounded by the
// parser's depth limit.
Result<void> check_keys(JsonValue value, const JsonLimits& limits) {
  JsonArray items;
  if (!value.get(items)) {
    size_t index = 0;
    for (const JsonValue item : items) {
      auto checked = check_keys(item, limits);
      if (!checked) return inside(item_path("", index), std::move(checked).error());
      ++index;
    }
    return {};
  }
  JsonObject members;
  if (value.get(members)) return {};
  std::vector<std::string_view> keys;
  for (const auto& [key, item] : members) {
    if (key.size() > limits.key_bytes_max) {
      return invalid_field(
          "", fmt::format("the name of a field is longer than {} bytes", limits.key_bytes_max));
    }
    keys.push_back(key);
    if (!item.is_array() && !item.is_object()) continue;
    auto checked = check_keys(item, limits);
    if (!checked) return inside(shown_key(key), std::move(checked).error());
  }
  if (const auto twice = find_duplicate(keys)) {
    return invalid_field(shown_key(*twice), "a field stands twice in one JSON object");
  }
  return {};
}

// The parser's own limit lets an empty container stand one level deeper; this one is exact.
bool is_deeper_than(JsonValue value, size_t levels) {
  JsonArray items;
  JsonObject members;
  if (!value.get(items)) {
    if (levels == 0) return true;
    for (const JsonValue item : items) {
      if (is_deeper_than(item, levels - 1)) return true;
    }
  } else if (!value.get(members)) {
    if (levels == 0) return true;
    for (const auto& [key, item] : members) {
      if (is_deeper_than(item, levels - 1)) return true;
    }
  }
  return false;
}

// The field of the body whose number no type of ours can hold, or nothing. Only for the error: the
// whole body is refused already.
std::string field_of_bad_number(const std::string& body) {
  const simdjson::padded_string padded(body);
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  simdjson::ondemand::object object;
  if (parser.iterate(padded).get(document) || document.get_object().get(object)) return {};
  for (auto field : object) {
    std::string_view key;
    simdjson::ondemand::value value;
    simdjson::ondemand::json_type type{};
    if (field.unescaped_key().get(key) || field.value().get(value)) return {};
    if (value.type().get(type)) return {};
    if (type == simdjson::ondemand::json_type::number && value.get_number().error()) {
      return shown_key(key);
    }
  }
  return {};
}

std::string_view type_name(JsonValue value) {
  switch (value.type()) {
    case ElementType::ARRAY:
      return "an array";
    case ElementType::OBJECT:
      return "an object";
    case ElementType::STRING:
      return "a string";
    case ElementType::BOOL:
      return "a boolean";
    case ElementType::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

Error wrong_type(const std::string& path, std::string_view wanted, JsonValue value) {
  return invalid_field(path, fmt::format("{} must be {}, not {}", path, wanted, type_name(value)));
}

}  // namespace

Error invalid_field(std::string param, std::string text) {
  return Error{ErrorCode::kInvalidArgument, std::move(text), std::move(param)};
}

std::string item_path(const std::string& path, size_t index) {
  return fmt::format("{}[{}]", path, index);
}

Result<JsonValue> parse_json(simdjson::dom::parser& parser, const std::string& body,
                             const JsonLimits& limits) {
  if (body.empty()) return invalid_field("", "the body is empty; it must be a JSON object");
  // The parser counts the root as one level of its own.
  simdjson::error_code error = parser.allocate(body.size(), limits.depth_max + 1);
  JsonValue root;
  if (!error) error = parser.parse(body).get(root);
  if (error == simdjson::DEPTH_ERROR || (!error && is_deeper_than(root, limits.depth_max))) {
    return invalid_field("",
                         fmt::format("the JSON is nested deeper than {} levels", limits.depth_max));
  }
  if (error == simdjson::MEMALLOC || error == simdjson::CAPACITY) {
    return Error{ErrorCode::kResourceExhausted, "no memory for a body of this size now", ""};
  }
  if (error == simdjson::NUMBER_ERROR) {
    return invalid_field(field_of_bad_number(body),
                         "a number in the body is malformed or beyond 64 bits");
  }
  if (error) {
    return invalid_field(
        "", fmt::format("the body is not valid JSON: {}", simdjson::error_message(error)));
  }
  TRY(check_keys(root, limits));
  return root;
}

Result<int64_t> read_integer(JsonValue value, const std::string& path, int64_t low, int64_t high) {
  int64_t number = 0;
  const bool exact = value.type() == ElementType::INT64 && !value.get(number);
  if (exact && number >= low && number <= high) return number;
  if (!exact && value.type() != ElementType::UINT64) return wrong_type(path, "an integer", value);
  return invalid_field(path, fmt::format("{} must be between {} and {}", path, low, high));
}

Result<double> read_number(JsonValue value, const std::string& path, double low, double high) {
  double number = 0;
  if (!value.is_number() || value.get(number)) return wrong_type(path, "a number", value);
  if (!(number >= low && number <= high)) {
    return invalid_field(path, fmt::format("{} must be between {} and {}", path, low, high));
  }
  return number + 0.0;  // -0 becomes 0
}

Result<bool> read_boolean(JsonValue value, const std::string& path) {
  bool flag = false;
  if (value.get(flag)) return wrong_type(path, "a boolean", value);
  return flag;
}

Result<std::string_view> read_text(JsonValue value, const std::string& path, size_t bytes_max) {
  std::string_view text;
  if (value.get(text)) return wrong_type(path, "a string", value);
  if (text.size() > bytes_max) {
    return invalid_field(path, fmt::format("{} is longer than {} bytes", path, bytes_max));
  }
  return text;
}

ObjectReader::ObjectReader(JsonObject object, std::string path) : path_(std::move(path)) {
  fields_.reserve(object.size());
  for (const auto& [key, value] : object) fields_.push_back({key, value});
}

Result<ObjectReader> ObjectReader::of(JsonValue value, std::string path) {
  JsonObject object;
  if (value.get(object)) {
    return path.empty() ? invalid_field("", "the body must be a JSON object")
                        : wrong_type(path, "an object", value);
  }
  return ObjectReader(object, std::move(path));
}

std::string ObjectReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::optional<JsonValue> ObjectReader::value(std::string_view key) {
  for (Field& field : fields_) {
    if (field.key != key) continue;
    field.asked = true;
    if (field.value.is_null()) return std::nullopt;
    return field.value;
  }
  return std::nullopt;
}

Result<std::optional<int64_t>> ObjectReader::integer(std::string_view key, int64_t low,
                                                     int64_t high) {
  const auto found = value(key);
  if (!found) return std::optional<int64_t>();
  return std::optional<int64_t>(TRY(read_integer(*found, path_of(key), low, high)));
}

Result<std::optional<double>> ObjectReader::number(std::string_view key, double low, double high) {
  const auto found = value(key);
  if (!found) return std::optional<double>();
  return std::optional<double>(TRY(read_number(*found, path_of(key), low, high)));
}

Result<std::optional<bool>> ObjectReader::boolean(std::string_view key) {
  const auto found = value(key);
  if (!found) return std::optional<bool>();
  return std::optional<bool>(TRY(read_boolean(*found, path_of(key))));
}

Result<std::optional<std::string_view>> ObjectReader::text(std::string_view key, size_t bytes_max) {
  const auto found = value(key);
  if (!found) return std::optional<std::string_view>();
  return std::optional<std::string_view>(TRY(read_text(*found, path_of(key), bytes_max)));
}

Result<std::optional<JsonArray>> ObjectReader::array(std::string_view key, size_t count_max) {
  const auto found = value(key);
  if (!found) return std::optional<JsonArray>();
  JsonArray items;
  if (found->get(items)) return wrong_type(path_of(key), "an array", *found);
  // size() saturates at 2^24 - 1, far above every limit of ours.
  if (items.size() > count_max) {
    return invalid_field(path_of(key),
                         fmt::format("{} has more than {} entries", path_of(key), count_max));
  }
  return std::optional<JsonArray>(items);
}

Result<std::optional<ObjectReader>> ObjectReader::object(std::string_view key) {
  const auto found = value(key);
  if (!found) return std::optional<ObjectReader>();
  return std::optional<ObjectReader>(TRY(ObjectReader::of(*found, path_of(key))));
}

size_t ObjectReader::unknown() const {
  return static_cast<size_t>(
      std::count_if(fields_.begin(), fields_.end(), [](const Field& f) { return !f.asked; }));
}

}  // namespace tandem::serve
