// SPDX-License-Identifier: Apache-2.0
#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace tandem {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  // stderr and not the log: the log may be what broke, and its queue would not be written before
  // abort.
  std::fprintf(stderr, "%s:%d: CHECK failed: %s%s%s\n", file, line, condition,
               values.empty() ? "" : ": ", values.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tandem
