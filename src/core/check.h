// SPDX-License-Identifier: Apache-2.0
// CHECK: a broken invariant is a bug, so it ends the process, in release builds too. For everybody.
// Bad input and lost peers are not bugs: they are Result (core/result.h).
#pragma once

#include <fmt/format.h>

#include <string>

namespace tandem {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);

}  // namespace tandem

// CHECK(a < b) or CHECK(a < b, "a {} b {}", a, b): the values are formatted only on failure.
#define CHECK(condition, ...)                                   \
  (static_cast<bool>(condition)                                 \
       ? static_cast<void>(0)                                   \
       : ::tandem::check_failed(__FILE__, __LINE__, #condition, \
                                ::tandem::core::check_values(__VA_ARGS__)))

namespace tandem::core {

inline std::string check_values() {
  return {};
}
template <typename... Args>
std::string check_values(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace tandem::core
