// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an operating error (a bad file or request, a lost peer, a time-out). For
// everybody. Whoever first knows what went wrong logs it, callers only pass it on with TRY.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"

namespace tandem {

enum class ErrorCode {
  kInvalidArgument,    // the request or setting is wrong; `param` names the field
  kUnauthenticated,    // no key, or a wrong one
  kNotFound,           // no such model, file, route or request
  kTooLarge,           // over a limit of this server
  kUnsupported,        // well formed, but of a kind that we do not know
  kDataLoss,           // a file or a message is damaged: truncated, overlapping, digest differs
  kResourceExhausted,  // out of queue, pages or memory now; may be retried
  kUnavailable,        // shutting down, or the peer is gone
  kDeadlineExceeded,   // took longer than it may
  kCancelled,          // the caller gave up
  kInternal,           // our fault, but not one that must end the process
};

[[nodiscard]] std::string_view error_code_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string text;   // one sentence for the user; names the field, file or peer
  std::string param;  // the request field or file that is wrong, or empty
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit, so `return value;` works
  Result(Error error)
      : error_(std::move(error)) {}  // NOLINT: implicit, so `return Error{…};` works

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }

  [[nodiscard]] T& value() & {
    CHECK(ok(), "{}", error_.text);
    return *value_;
  }
  [[nodiscard]] const T& value() const& {
    CHECK(ok(), "{}", error_.text);
    return *value_;
  }
  [[nodiscard]] T&& value() && {
    CHECK(ok(), "{}", error_.text);
    return std::move(*value_);
  }
  [[nodiscard]] const Error& error() const& {
    CHECK(!ok());
    return error_;
  }
  [[nodiscard]] Error&& error() && {
    CHECK(!ok());
    return std::move(error_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Error error_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error)
      : error_(std::move(error)) {}  // NOLINT: implicit, so `return Error{…};` works

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  void value() const { CHECK(ok(), "{}", error_->text); }
  [[nodiscard]] const Error& error() const& {
    CHECK(!ok());
    return *error_;
  }
  [[nodiscard]] Error&& error() && {
    CHECK(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace tandem

// `auto value = TRY(fallible());` returns the error to the caller, else gives the value. TRY of
// Result<void> gives nothing.
#define TRY(expression)                                           \
  ({                                                              \
    auto try_result_ = (expression);                              \
    if (!try_result_.ok()) return std::move(try_result_).error(); \
    std::move(try_result_).value();                               \
  })
