// SPDX-License-Identifier: Apache-2.0
// The handoff protocol's messages: what a decode worker and a prefill worker say to each other.
// docs/handoff.md tells it as a whole. KV bytes never travel here, only ids, counts and digests.
//
//   decode  reserves pages, expects (id, epoch, parts)  -- PrefillOrder -->  prefill
//   prefill pushes pages layer by layer                 == transport ====>   decode counts parts
//   prefill                                             -- HandoffEnd --->   decode verifies, joins
//   decode  may send PrefillCancel at any time
//
// Every order with a target is answered by exactly one HandoffEnd of its key, and only after all
// its transfers are terminal: from then on nothing but the decoder touches the target pages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "engine/bounded_queue.h"
#include "engine/coordinator.h"
#include "model/kv_store.h"
#include "transfer/digest.h"
#include "transfer/transport.h"

namespace tandem::engine {

// A worker's KV memory as others may write it: slab [layer * 2 + kind], pages at a stride of
// layout.page_bytes().
struct KvExport {
  model::KvLayout layout;
  std::vector<transfer::MemoryHandle> slabs;
};

// Registers every slab. `kv` must outlive the registration.
[[nodiscard]] Result<KvExport> export_kv(const model::KvStore& kv, transfer::Transport& transport);

// Where a decoder wants a prompt's KV. Pages before first_page it has already, from its cache.
// Part (layer * 2 + kind) * pages.size() + i is page first_page + i of that slab.
struct HandoffTarget {
  transfer::HandoffKey key;
  int32_t first_page = 0;
  std::vector<PageId> pages;
};
[[nodiscard]] constexpr uint32_t part_count(const model::KvLayout& layout, size_t pages) {
  return static_cast<uint32_t>(layout.layers) * 2 * static_cast<uint32_t>(pages);
}

struct PrefillOrder {
  SubmitPtr submit;
  std::optional<HandoffTarget> target;  // absent: the first token is all that is wanted
};
struct PrefillCancel {
  RequestId id;
  transfer::HandoffKey key;  // of the order's target; an order without one has the default
};
using PrefillMessage = std::variant<PrefillOrder, PrefillCancel>;

enum class HandoffOutcome : uint8_t {
  kComplete,   // all was sent; the rest of the message holds
  kFinished,   // the request ended at its first token, or with its own error: nothing to join
  kCancelled,  // as the decoder asked
  kFailed,     // a transfer failed or expired
};

struct HandoffEnd {
  RequestId id;
  transfer::HandoffKey key;
  HandoffOutcome outcome = HandoffOutcome::kFailed;
  int32_t first_token = 0;
  int32_t prompt_tokens = 0;
  uint32_t parts = 0;
  std::vector<transfer::Digest> layer_digests;  // [layers], of the parts' digests of K, then of V
  TimePoint last_chunk_end{};
};

// What joins the two workers of an engine. Thread safe; each side is used by one thread.
struct HandoffQueues {
  explicit HandoffQueues(size_t messages_max) : to_prefill(messages_max), to_decode(messages_max) {}
  BoundedQueue<PrefillMessage> to_prefill;
  BoundedQueue<HandoffEnd> to_decode;
};

// Digest of each layer from those of its parts, in part order.
[[nodiscard]] std::vector<transfer::Digest> layer_digests(const model::KvLayout& layout,
                                                          std::span<const transfer::Digest> parts);

// The bytes of one part's page.
[[nodiscard]] std::span<const std::byte> page_bytes(const model::KvStore& kv, int32_t slab,
                                                    PageId page);

}  // namespace tandem::engine
