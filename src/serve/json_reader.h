// SPDX-License-Identifier: Apache-2.0
// JSON in, for untrusted bodies: one strict parse (RFC 8259, UTF-8, bounded depth, no duplicate
// keys), then typed reading that names the field in every error. The gate (gate*.cpp) calls it on a
// worker thread; nothing else of the program sees a JSON value of a client.
//
// Exact means: an integer field takes a JSON integer in range. 1.9, 1.0, true, "3" and numbers
// beyond 64 bits are refused, never rounded or wrapped.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace tandem::serve {

using JsonValue = simdjson::dom::element;
using JsonArray = simdjson::dom::array;
using JsonObject = simdjson::dom::object;

struct JsonLimits {
  size_t depth_max = 64;        // containers open at once
  size_t key_bytes_max = 1024;  // of one member name
};

// The body as a value that lives as long as `parser` and its next parse. kInvalidArgument: not
// JSON, not UTF-8, lone surrogate, text after the document, too deep, a key twice in one object, a
// key too long.
[[nodiscard]] Result<JsonValue> parse_json(simdjson::dom::parser& parser, const std::string& body,
                                           const JsonLimits& limits);

[[nodiscard]] Error invalid_field(std::string param, std::string text);

// Reads one object field by field. A getter gives nullopt where the field is absent or null, and an
// error with the field's path where its type or range is wrong. What no getter asked for counts as
// unknown.
class ObjectReader {
 public:
  ObjectReader(JsonObject object, std::string path);
  // Error where `value` is no object.
  static Result<ObjectReader> of(JsonValue value, std::string path);

  [[nodiscard]] std::optional<JsonValue> value(std::string_view key);
  [[nodiscard]] Result<std::optional<int64_t>> integer(std::string_view key, int64_t low,
                                                       int64_t high);
  [[nodiscard]] Result<std::optional<double>> number(std::string_view key, double low, double high);
  [[nodiscard]] Result<std::optional<bool>> boolean(std::string_view key);
  // The view lives as long as the parser.
  [[nodiscard]] Result<std::optional<std::string_view>> text(std::string_view key,
                                                             size_t bytes_max);
  [[nodiscard]] Result<std::optional<JsonArray>> array(std::string_view key, size_t count_max);
  [[nodiscard]] Result<std::optional<ObjectReader>> object(std::string_view key);

  [[nodiscard]] std::string path_of(std::string_view key) const;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] size_t size() const { return fields_.size(); }
  [[nodiscard]] size_t unknown() const;  // fields that nobody asked for so far

  struct Field {
    std::string_view key;
    JsonValue value;
    bool asked = false;
  };
  // For objects whose keys are data (logit_bias, metadata, chat_template_kwargs).
  [[nodiscard]] const std::vector<Field>& fields() const { return fields_; }

 private:
  std::string path_;
  std::vector<Field> fields_;
};

// The same checks for one value: array elements.
[[nodiscard]] Result<int64_t> read_integer(JsonValue value, const std::string& path, int64_t low,
                                           int64_t high);
[[nodiscard]] Result<double> read_number(JsonValue value, const std::string& path, double low,
                                         double high);
[[nodiscard]] Result<bool> read_boolean(JsonValue value, const std::string& path);
[[nodiscard]] Result<std::string_view> read_text(JsonValue value, const std::string& path,
                                                 size_t bytes_max);

[[nodiscard]] std::string item_path(const std::string& path, size_t index);  // "messages[3]"

}  // namespace tandem::serve
