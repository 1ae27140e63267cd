// SPDX-License-Identifier: Apache-2.0
// XXH3-128 digests of pages and of groups of pages: how a receiver knows that the bytes in its
// memory are those that the sender computed. Against faults, not against forgers: the peers trust
// each other. Source: xxHash 0.8 specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem::transfer {

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};

[[nodiscard]] Digest digest_of(std::span<const std::byte> bytes);

// The digest of a group is that of its members' digests in order, so that pages may be digested as
// they come, in any order, and a page in another's place still shows.
[[nodiscard]] Digest digest_of(std::span<const Digest> members);

}  // namespace tandem::transfer
