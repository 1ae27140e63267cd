// SPDX-License-Identifier: Apache-2.0
// Plain data of the transfer engine: what may be asked, how it ends, what the receiver learns.
// engine/ fills requests, transports carry them out. They know pages and strides, never layers or
// heads: a cache that is sharded otherwise on the other side is only another length, base and
// stride. Source: the request kinds follow Perplexity's fabric-lib (paged write by index and
// stride, single write, immediate).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"
#include "core/result.h"

namespace tandem::transfer {

using EndpointId = Id<struct EndpointTag, uint32_t>;  // one worker's end of a transport
using TransferId = Id<struct TransferTag, uint64_t>;  // one accepted request; never reused

// Registered memory: what a receiver hands out so that it can be written from afar. A key is never
// used twice, so a handle outlives its registration only as a refusal.
struct MemoryHandle {
  EndpointId endpoint;
  uint64_t key = 0;
  uint64_t bytes = 0;
  friend bool operator==(const MemoryHandle&, const MemoryHandle&) = default;
};

// One attempt to move one prompt's KV. A second attempt has a higher epoch, so that whatever is
// still under way from the first can be told apart.
struct HandoffKey {
  HandoffId handoff;
  uint32_t epoch = 0;
  friend auto operator<=>(const HandoffKey&, const HandoffKey&) = default;
};

// The receiver's count: parts [begin, begin + count) of a handoff stand in its memory.
struct Parts {
  HandoffKey key;
  uint32_t begin = 0;
  uint32_t count = 0;
  friend bool operator==(const Parts&, const Parts&) = default;
};

// For each i: `length` bytes from src_base + src_indices[i] * src_stride to
// dst_base + dst_indices[i] * dst_stride. All in bytes.
struct PagedWrite {
  uint64_t length = 0;
  MemoryHandle src;
  uint64_t src_base = 0;
  uint64_t src_stride = 0;
  std::vector<int32_t> src_indices;
  MemoryHandle dst;
  uint64_t dst_base = 0;
  uint64_t dst_stride = 0;
  std::vector<int32_t> dst_indices;  // as many as src_indices
};

struct SingleWrite {
  uint64_t length = 0;
  MemoryHandle src;
  uint64_t src_offset = 0;
  MemoryHandle dst;
  uint64_t dst_offset = 0;
};

struct Immediate {  // no bytes, only the count
  EndpointId dst;
};

struct Request {
  std::variant<PagedWrite, SingleWrite, Immediate> op;
  HandoffKey owner;            // what cancel() names
  std::optional<Parts> parts;  // told to the receiver after the last byte stands there
  TimePoint deadline = TimePoint::max();
};

enum class Outcome : uint8_t {
  kDone,       // every byte stands, the count was delivered
  kCancelled,  // by cancel(); some bytes may have been written
  kExpired,    // deadline passed; some bytes may have been written
  kFailed,     // the peer or its memory is gone; some bytes may have been written
};

// The terminal state of a request: no byte of it will be read or written from now on.
struct Completion {
  TransferId id;
  HandoffKey owner;
  Outcome outcome = Outcome::kDone;
};

[[nodiscard]] uint64_t request_bytes(const Request& request);  // moved when all goes well
[[nodiscard]] EndpointId destination(const Request& request);

// Everything that can be known wrong before a byte moves: index below 0, a piece that leaves its
// region on either side, overflow, unequal index counts, a source that is not `self`'s.
// kInvalidArgument names the field.
[[nodiscard]] Result<void> check_request(const Request& request, EndpointId self);

}  // namespace tandem::transfer
