// SPDX-License-Identifier: Apache-2.0
#include "engine/outgoing.h"

#include <algorithm>
#include <utility>

namespace tandem::engine {

Outgoing::Outgoing(HandoffTarget target, const model::KvLayout& layout, std::vector<PageId> pages,
                   int32_t prompt_tokens)
    : target_(std::move(target)), layout_(layout), prompt_tokens_(prompt_tokens) {
  const auto first = static_cast<size_t>(target_.first_page);
  CHECK(first + target_.pages.size() == pages.size(), "pages {} + {} of {}", first,
        target_.pages.size(), pages.size());
  pages_.assign(pages.begin() + target_.first_page, pages.end());
  ready_.assign(static_cast<size_t>(layout.layers), 0);
  pushed_.assign(static_cast<size_t>(layout.layers) * 2, 0);
  digests_.resize(part_count(layout, pages_.size()));
}

void Outgoing::layer_ready(int32_t layer, int32_t tokens) {
  const bool all = tokens >= prompt_tokens_;
  const int32_t pages =
      all ? static_cast<int32_t>(pages_.size()) : tokens / layout_.page_tokens - target_.first_page;
  int32_t& ready = ready_[static_cast<size_t>(layer)];
  ready = std::max(ready, pages);
}

Result<void> Outgoing::push(const Route& route, TimePoint deadline) {
  if (all_pushed()) return {};
  for (int32_t slab = 0; slab < layout_.layers * 2; ++slab) {
    const int32_t ready = ready_[static_cast<size_t>(slab / 2)];
    if (pushed_[static_cast<size_t>(slab)] >= ready) continue;
    if (!TRY(push_slab(route, slab, ready, deadline))) return {};
  }
  return {};
}

Result<bool> Outgoing::push_slab(const Route& route, int32_t slab, int32_t ready,
                                 TimePoint deadline) {
  const auto idx = static_cast<size_t>(slab);
  const int32_t begin = pushed_[idx];
  const uint32_t first_part =
      static_cast<uint32_t>(idx * pages_.size()) + static_cast<uint32_t>(begin);
  transfer::PagedWrite write{.length = layout_.page_bytes(),
                             .src = route.source.slabs[idx],
                             .src_stride = layout_.page_bytes(),
                             .dst = route.destination.slabs[idx],
                             .dst_stride = layout_.page_bytes()};
  for (int32_t i = begin; i < ready; ++i) {
    const auto page = static_cast<size_t>(i);
    write.src_indices.push_back(pages_[page].value);
    write.dst_indices.push_back(target_.pages[page].value);
  }
  const transfer::Parts parts{
      .key = key(), .begin = first_part, .count = static_cast<uint32_t>(ready - begin)};
  const auto id = TRY(route.transport.submit(
      {.op = std::move(write), .owner = key(), .parts = parts, .deadline = deadline}));
  if (!id) return false;
  for (int32_t i = begin; i < ready; ++i) {
    digests_[idx * pages_.size() + static_cast<size_t>(i)] =
        transfer::digest_of(page_bytes(route.kv, slab, pages_[static_cast<size_t>(i)]));
  }
  ++open_;
  pushed_[idx] = ready;
  pushed_parts_ += parts.count;
  return true;
}

void Outgoing::completed(transfer::Outcome outcome) {
  CHECK(open_ > 0, "handoff {}", key().handoff.value);
  --open_;
  failed_ |= outcome != transfer::Outcome::kDone;
}

std::vector<transfer::Digest> Outgoing::layer_digests() const {
  return engine::layer_digests(layout_, digests_);
}

}  // namespace tandem::engine
