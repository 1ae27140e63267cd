// SPDX-License-Identifier: Apache-2.0
// What the HTTP side refuses by itself, each with its status and fixed words in OpenAI's error
// shape. No text of a library, no address and no byte of the client gets into an answer.
// Used by the parser, the connection and, for requests that a handler dropped, by Exchange.
// Source: RFC 9110 (statuses); https://platform.openai.com/docs/guides/error-codes (shape).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::serve {

enum class Refusal : uint8_t {
  kBadRequestLine,
  kBadField,
  kBadHost,
  kBadTarget,
  kBadFraming,
  kBadChunk,
  kBadKey,
  kNoRoute,
  kBadMethod,
  kHeadDeadline,
  kBodyDeadline,
  kBodyTooLarge,
  kTargetTooLong,
  kContentEncoding,
  kExpectation,
  kTooManyConnectionsOfClient,
  kHeadTooLarge,
  kNoAnswer,
  kTransferEncoding,
  kTooManyConnections,
  kBodiesTooLarge,
  kShuttingDown,
  kVersion,
};
inline constexpr size_t kRefusalCount = static_cast<size_t>(Refusal::kVersion) + 1;

struct RefusalInfo {
  int status;
  std::string_view code;  // snake_case: "code" of the answer and the metrics label
  std::string_view message;
  std::string_view header;  // a further response field with its CRLF, or empty
};

inline constexpr std::string_view kJsonType = "application/json";

[[nodiscard]] const RefusalInfo& refusal_info(Refusal refusal);

// {"error":{"message":…,"type":…,"param":null,"code":…}}
[[nodiscard]] std::string error_body(const RefusalInfo& info);

// "Not Found" for 404; "Unknown" for a status that this server never sends.
[[nodiscard]] std::string_view reason_phrase(int status);

}  // namespace tandem::serve
