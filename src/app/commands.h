// SPDX-License-Identifier: Apache-2.0
// The subcommands. Each returns the program's exit code: 0 well, 1 failed while running, 2 the
// user's settings.
#pragma once

#include "app/config.h"

namespace tandem::app {

[[nodiscard]] int run_serve(const ServeFlags& flags);
[[nodiscard]] int run_generate(const GenerateFlags& flags);
[[nodiscard]] int run_inspect(const InspectFlags& flags);

// Prints "tandem: what went wrong" as one line on stderr; returns 2.
[[nodiscard]] int fail_start(const Error& error);

}  // namespace tandem::app
