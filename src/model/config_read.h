// SPDX-License-Identifier: Apache-2.0
// JSON of a model folder, read strictly: depth <= 64, no key twice in one object, numbers in the
// range that the caller names. config, safetensors and the shard index are read with it. Every
// error names the file and the field.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace tandem::model {

class JsonDocument {
 public:
  // kDataLoss for what is not JSON (also NaN, a number too large, wrong UTF-8), kInvalidArgument
  // for a repeated key. The root must be an object.
  static Result<JsonDocument> parse(std::string_view text, std::string_view file_name);

  [[nodiscard]] simdjson::dom::object root() const { return root_; }

 private:
  std::unique_ptr<simdjson::dom::parser> parser_;  // elements point into it
  simdjson::dom::object root_;
};

// The fields of one object. A field that is absent or null counts as missing.
class FieldReader {
 public:
  // `path` is what stands before a field's name in errors: "" or "text_config.".
  FieldReader(simdjson::dom::object object, std::string_view file_name, std::string_view path = "")
      : object_(object), file_name_(file_name), path_(path) {}

  [[nodiscard]] bool has(std::string_view field) const;
  [[nodiscard]] std::optional<simdjson::dom::element> find(std::string_view field) const;

  // low..high, both allowed.
  [[nodiscard]] Result<int64_t> integer(std::string_view field, int64_t low, int64_t high) const;
  [[nodiscard]] Result<int64_t> integer_or(std::string_view field, int64_t low, int64_t high,
                                           int64_t fallback) const;
  [[nodiscard]] Result<double> number(std::string_view field, double low, double high) const;
  [[nodiscard]] Result<std::optional<double>> optional_number(std::string_view field, double low,
                                                              double high) const;
  [[nodiscard]] Result<double> number_or(std::string_view field, double low, double high,
                                         double fallback) const;
  [[nodiscard]] Result<bool> boolean_or(std::string_view field, bool fallback) const;
  [[nodiscard]] Result<std::string> text_or(std::string_view field,
                                            std::string_view fallback) const;
  // Nothing where the field is missing.
  [[nodiscard]] Result<std::optional<FieldReader>> object(std::string_view field) const;

  // "config.json: field 'hidden_size' <what>".
  [[nodiscard]] Error error(ErrorCode code, std::string_view field, std::string_view what) const;
  [[nodiscard]] Error invalid(std::string_view field, std::string_view what) const {
    return error(ErrorCode::kInvalidArgument, field, what);
  }

 private:
  simdjson::dom::object object_;
  std::string file_name_;
  std::string path_;
};

// A JSON value as an error quotes it: short, on one line.
[[nodiscard]] std::string quote_json(simdjson::dom::element value);

}  // namespace tandem::model
