// SPDX-License-Identifier: Apache-2.0
#include "transfer/digest.h"

#include <xxhash.h>

namespace tandem::transfer {

Digest digest_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.low = hash.low64, .high = hash.high64};
}

Digest digest_of(std::span<const Digest> members) {
  static_assert(sizeof(Digest) == 16);  // no padding, so the bytes are the value
  return digest_of(std::as_bytes(members));
}

}  // namespace tandem::transfer
