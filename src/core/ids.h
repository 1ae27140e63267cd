// SPDX-License-Identifier: Apache-2.0
// Ids are types, so that a page can't be passed where a request is wanted.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tandem {

template <typename Tag, typename Int>
struct Id {
  Int value{};
  friend auto operator<=>(Id, Id) = default;
};

using PageId = Id<struct PageTag, int32_t>;  // index of a KV page in its pool
using Rank = Id<struct RankTag, int32_t>;    // one device (or CPU thread team) of a group
using RequestId =
    Id<struct RequestTag, uint64_t>;  // one sequence to generate; unique within a server's life
using HandoffId =
    Id<struct HandoffTag, uint64_t>;  // one transfer of a prompt's KV from a prefiller to a decoder

}  // namespace tandem

template <typename Tag, typename Int>
struct std::hash<tandem::Id<Tag, Int>> {
  size_t operator()(tandem::Id<Tag, Int> id) const noexcept { return std::hash<Int>{}(id.value); }
};
