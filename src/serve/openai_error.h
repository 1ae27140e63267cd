// SPDX-License-Identifier: Apache-2.0
// An operating error as OpenAI's clients expect it: HTTP status and {"error": {message, type,
// param, code}}. Used by every handler. What the HTTP side refuses by itself is in http_error.h.
// Source: https://platform.openai.com/docs/guides/error-codes.
#pragma once

#include <string>

#include "core/result.h"

namespace tandem::serve {

[[nodiscard]] int http_status(ErrorCode code);

// Texts of our own faults (kInternal, kDataLoss) stay inside: they could name files and addresses,
// so the client gets fixed words instead.
[[nodiscard]] std::string error_json(const Error& error);

// A client may try again, a little later: its answer carries Retry-After.
[[nodiscard]] bool is_retryable(ErrorCode code);

}  // namespace tandem::serve
