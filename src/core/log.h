// SPDX-License-Identifier: Apache-2.0
// Log lines of the whole program, through spdlog. Prompts, completions and keys are never logged at
// any level.
#pragma once

#include <spdlog/spdlog.h>

namespace tandem::log {

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::warn;

}  // namespace tandem::log
