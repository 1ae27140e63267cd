// SPDX-License-Identifier: Apache-2.0
// The API keys of one listener. Only their SHA-256 digests are held, and comparing takes the same
// time whatever differs. app/ loads them, the connection asks for every request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace tandem::serve {

class ApiKeys {
 public:
  static constexpr size_t kKeyBytesMax = 512;
  static constexpr size_t kKeysMax = 4096;

  ApiKeys() = default;  // no keys: everybody may, as tenant 0

  // Each entry is a key (printable ASCII without spaces) or "sha256:" and the 64 hex digits of a
  // key's digest. Errors: kInvalidArgument that names the entry by number, never by its text.
  static Result<ApiKeys> open(std::span<const std::string> entries);

  [[nodiscard]] bool empty() const { return digests_.empty(); }

  // The tenant of an Authorization field value "Bearer KEY": the first 8 bytes of the key's digest,
  // never 0. Nothing for another scheme, a key over kKeyBytesMax or with other bytes, or no match.
  [[nodiscard]] std::optional<uint64_t> tenant_of(std::string_view authorization) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  std::vector<Digest> digests_;
};

}  // namespace tandem::serve
