// SPDX-License-Identifier: Apache-2.0
#include "model/config_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tandem::model {
namespace {

constexpr size_t kDepthMax = 64;

// simdjson keeps the first of two equal keys and says nothing; which one a writer meant is a guess.
std::optional<std::string> repeated_key(simdjson::dom::element element);

std::optional<std::string> repeated_key(simdjson::dom::object object) {
  std::vector<std::string_view> keys;
  keys.reserve(object.size());
  for (const simdjson::dom::key_value_pair field : object) keys.push_back(field.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) return std::string(*twice);
  for (const simdjson::dom::key_value_pair field : object) {
    if (auto key = repeated_key(field.value)) return key;
  }
  return std::nullopt;
}

std::optional<std::string> repeated_key(simdjson::dom::element element) {
  simdjson::dom::object object;
  if (element.get(object) == simdjson::SUCCESS) return repeated_key(object);
  simdjson::dom::array array;
  if (element.get(array) != simdjson::SUCCESS) return std::nullopt;
  for (const simdjson::dom::element item : array) {
    if (auto key = repeated_key(item)) return key;
  }
  return std::nullopt;
}

}  // namespace

Result<JsonDocument> JsonDocument::parse(std::string_view text, std::string_view file_name) {
  const auto damaged = [&](std::string_view what) {
    return Error{ErrorCode::kDataLoss, fmt::format("{}: {}", file_name, what),
                 std::string(file_name)};
  };
  JsonDocument document;
  document.parser_ = std::make_unique<simdjson::dom::parser>();
  if (document.parser_->allocate(std::max<size_t>(text.size(), 64), kDepthMax) !=
      simdjson::SUCCESS) {
    return damaged("too large to parse");
  }
  simdjson::dom::element root;
  const simdjson::error_code code = document.parser_->parse(text.data(), text.size()).get(root);
  if (code != simdjson::SUCCESS) {
    return damaged(fmt::format("is not valid JSON: {}", simdjson::error_message(code)));
  }
  if (root.get(document.root_) != simdjson::SUCCESS) return damaged("is not a JSON object");
  if (const auto key = repeated_key(document.root_)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: key '{}' stands twice in one object", file_name, *key),
                 std::string(file_name)};
  }
  return document;
}

std::string quote_json(simdjson::dom::element value) {
  constexpr size_t kLengthMax = 60;
  std::string text = simdjson::minify(value);
  if (text.size() > kLengthMax) {
    size_t end = kLengthMax;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    text.resize(end);
    text += "…";
  }
  return text;
}

Error FieldReader::error(ErrorCode code, std::string_view field, std::string_view what) const {
  return Error{code, fmt::format("{}: field '{}{}' {}", file_name_, path_, field, what),
               path_ + std::string(field)};
}

std::optional<simdjson::dom::element> FieldReader::find(std::string_view field) const {
  simdjson::dom::element value;
  if (object_.at_key(field).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

bool FieldReader::has(std::string_view field) const {
  return find(field).has_value();
}

Result<int64_t> FieldReader::integer(std::string_view field, int64_t low, int64_t high) const {
  const auto value = find(field);
  if (!value) return invalid(field, "is missing");
  int64_t number = 0;
  if (value->get(number) != simdjson::SUCCESS) {
    return invalid(field, fmt::format("is {}, not an integer", quote_json(*value)));
  }
  if (number < low || number > high) {
    return invalid(field, fmt::format("is {}, not in {}..{}", number, low, high));
  }
  return number;
}

Result<int64_t> FieldReader::integer_or(std::string_view field, int64_t low, int64_t high,
                                        int64_t fallback) const {
  if (!has(field)) return fallback;
  return integer(field, low, high);
}

Result<double> FieldReader::number(std::string_view field, double low, double high) const {
  const auto value = find(field);
  if (!value) return invalid(field, "is missing");
  double number = 0;
  if (value->get(number) != simdjson::SUCCESS) {
    return invalid(field, fmt::format("is {}, not a number", quote_json(*value)));
  }
  if (!(number >= low && number <= high)) {
    return invalid(field, fmt::format("is {}, not in {}..{}", number, low, high));
  }
  return number;
}

Result<std::optional<double>> FieldReader::optional_number(std::string_view field, double low,
                                                           double high) const {
  if (!has(field)) return std::optional<double>();
  return std::optional<double>(TRY(number(field, low, high)));
}

Result<double> FieldReader::number_or(std::string_view field, double low, double high,
                                      double fallback) const {
  if (!has(field)) return fallback;
  return number(field, low, high);
}

Result<bool> FieldReader::boolean_or(std::string_view field, bool fallback) const {
  const auto value = find(field);
  if (!value) return fallback;
  bool flag = false;
  if (value->get(flag) != simdjson::SUCCESS) {
    return invalid(field, fmt::format("is {}, not true or false", quote_json(*value)));
  }
  return flag;
}

Result<std::string> FieldReader::text_or(std::string_view field, std::string_view fallback) const {
  const auto value = find(field);
  if (!value) return std::string(fallback);
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) {
    return invalid(field, fmt::format("is {}, not a string", quote_json(*value)));
  }
  return std::string(text);
}

Result<std::optional<FieldReader>> FieldReader::object(std::string_view field) const {
  const auto value = find(field);
  if (!value) return std::optional<FieldReader>();
  simdjson::dom::object inner;
  if (value->get(inner) != simdjson::SUCCESS) {
    return invalid(field, fmt::format("is {}, not an object", quote_json(*value)));
  }
  return std::optional<FieldReader>(
      FieldReader(inner, file_name_, fmt::format("{}{}.", path_, field)));
}

}  // namespace tandem::model
