// SPDX-License-Identifier: Apache-2.0
#include "serve/openai_error.h"

#include <string_view>

#include "serve/json_writer.h"

namespace tandem::serve {
namespace {

std::string_view error_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

std::string_view error_code(const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFound:
      return "model_not_found";
    case ErrorCode::kTooLarge:
      return "context_length_exceeded";
    case ErrorCode::kUnsupported:
      return "unsupported_parameter";
    case ErrorCode::kInvalidArgument:
      return "invalid_value";
    default:
      return error_code_name(error.code);
  }
}

}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kTooLarge:
    case ErrorCode::kUnsupported:
      return 400;
    case ErrorCode::kUnauthenticated:
      return 401;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kResourceExhausted:
      return 429;
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled:
      return 503;
    case ErrorCode::kDeadlineExceeded:
      return 504;
    case ErrorCode::kDataLoss:
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

bool is_retryable(ErrorCode code) {
  const int status = http_status(code);
  return status == 429 || status == 503;
}

std::string error_json(const Error& error) {
  const int status = http_status(error.code);
  std::string out = R"({"error":{"message":)";
  append_json_string(out, status == 500 ? "the server failed at this request" : error.text);
  out += R"(,"type":)";
  append_json_string(out, error_type(status));
  out += R"(,"param":)";
  if (error.param.empty()) {
    out += "null";
  } else {
    append_json_string(out, error.param);
  }
  out += R"(,"code":)";
  append_json_string(out, error_code(error));
  out += "}}";
  return out;
}

}  // namespace tandem::serve
