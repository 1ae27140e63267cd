// SPDX-License-Identifier: Apache-2.0
#include "transfer/loopback.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "core/check.h"

namespace tandem::transfer {

// What endpoints share: who is there, which memory is registered, what arrived.
struct LoopbackFabric::Shared {
  struct Region {
    std::byte* data = nullptr;
    uint64_t bytes = 0;
    int pins = 0;  // writes that move bytes of it now
  };
  struct Inbox {
    std::vector<Parts> arrived;
    std::map<uint64_t, Region> regions;  // by key
  };

  explicit Shared(LoopbackLimits l) : limits(l) {}

  // Null where the region is gone, or not of the size that the handle claims.
  Region* find(const MemoryHandle& memory) {
    const auto endpoint = inboxes.find(memory.endpoint);
    if (endpoint == inboxes.end()) return nullptr;
    const auto region = endpoint->second.regions.find(memory.key);
    if (region == endpoint->second.regions.end()) return nullptr;
    return region->second.bytes == memory.bytes ? &region->second : nullptr;
  }

  const LoopbackLimits limits;
  std::mutex mutex;
  std::map<EndpointId, Inbox> inboxes;
  uint32_t next_endpoint = 1;
  uint64_t next_key = 1;
};

class LoopbackFabric::Endpoint final : public Transport {
 public:
  Endpoint(std::shared_ptr<Shared> shared, EndpointId id) : shared_(std::move(shared)), id_(id) {}
  ~Endpoint() override {
    const std::lock_guard lock(shared_->mutex);
    for (const auto& [key, region] : shared_->inboxes[id_].regions) {
      CHECK(region.pins == 0, "endpoint {} ends while its memory is written", id_.value);
    }
    shared_->inboxes.erase(id_);
  }

  EndpointId id() const override { return id_; }

  Result<MemoryHandle> register_memory(std::span<std::byte> memory) override {
    if (memory.empty()) return Error{ErrorCode::kInvalidArgument, "no bytes to register", "memory"};
    const std::lock_guard lock(shared_->mutex);
    const uint64_t key = shared_->next_key++;
    shared_->inboxes[id_].regions[key] = {.data = memory.data(), .bytes = memory.size()};
    return MemoryHandle{.endpoint = id_, .key = key, .bytes = memory.size()};
  }

  bool deregister_memory(const MemoryHandle& memory) override {
    const std::lock_guard lock(shared_->mutex);
    const Shared::Region* region = shared_->find(memory);
    CHECK(region != nullptr && memory.endpoint == id_, "key {}", memory.key);
    if (region->pins > 0) return false;
    shared_->inboxes[id_].regions.erase(memory.key);
    return true;
  }

  Result<std::optional<TransferId>> submit(Request request) override {
    TRY(check_request(request, id_));
    if (open_.size() + completions_.size() >= shared_->limits.open_requests_max) {
      return std::optional<TransferId>();
    }
    const TransferId id{next_transfer_++};
    open_.push_back({.id = id, .request = std::move(request)});
    return std::optional(id);
  }

  void cancel(HandoffKey owner) override {
    for (Open& open : open_) open.cancelled |= open.request.owner == owner;
  }

  void step(TimePoint now) override {
    // Ends first, wherever in the queue: a cancel or a deadline never waits for another's bytes.
    for (Open& open : open_) {
      if (!open.outcome && open.cancelled) open.outcome = Outcome::kCancelled;
      if (!open.outcome && now >= open.request.deadline) open.outcome = Outcome::kExpired;
    }
    uint64_t budget = shared_->limits.bytes_per_step;
    for (Open& open : open_) {
      if (open.outcome) continue;
      if (budget == 0 || !advance(open, budget)) break;
    }
    std::erase_if(open_, [this](const Open& open) {
      if (open.outcome) {
        completions_.push_back(
            {.id = open.id, .owner = open.request.owner, .outcome = *open.outcome});
      }
      return open.outcome.has_value();
    });
  }

  void take_completions(std::vector<Completion>& out) override {
    out.insert(out.end(), completions_.begin(), completions_.end());
    completions_.clear();
  }

  void take_arrivals(std::vector<Parts>& out) override {
    const std::lock_guard lock(shared_->mutex);
    std::vector<Parts>& arrived = shared_->inboxes[id_].arrived;
    out.insert(out.end(), arrived.begin(), arrived.end());
    arrived.clear();
  }

 private:
  struct Open {
    TransferId id;
    Request request;
    size_t pieces_done = 0;
    bool cancelled = false;
    std::optional<Outcome> outcome;
  };
  // One contiguous copy.
  struct Piece {
    MemoryHandle src, dst;
    uint64_t src_offset = 0, dst_offset = 0, length = 0;
  };

  static size_t piece_count(const Request& request) {
    if (const auto* paged = std::get_if<PagedWrite>(&request.op)) return paged->src_indices.size();
    return std::holds_alternative<SingleWrite>(request.op) ? 1 : 0;
  }

  static Piece piece(const Request& request, size_t i) {
    if (const auto* w = std::get_if<SingleWrite>(&request.op)) {
      return {w->src, w->dst, w->src_offset, w->dst_offset, w->length};
    }
    const auto& w = std::get<PagedWrite>(request.op);
    return {.src = w.src,
            .dst = w.dst,
            .src_offset = w.src_base + static_cast<uint64_t>(w.src_indices[i]) * w.src_stride,
            .dst_offset = w.dst_base + static_cast<uint64_t>(w.dst_indices[i]) * w.dst_stride,
            .length = w.length};
  }

  // False: the queue has to stop here for this step (no budget, or the receiver's inbox is full).
  bool advance(Open& open, uint64_t& budget) {
    const size_t pieces = piece_count(open.request);
    if (open.pieces_done < pieces && !copy_pieces(open, pieces, budget)) {
      return open.outcome.has_value();
    }
    const std::lock_guard lock(shared_->mutex);
    const auto inbox = shared_->inboxes.find(destination(open.request));
    if (inbox == shared_->inboxes.end()) {
      open.outcome = Outcome::kFailed;
      return true;
    }
    if (open.request.parts) {
      if (inbox->second.arrived.size() >= shared_->limits.inbox_max) return false;
      inbox->second.arrived.push_back(*open.request.parts);
    }
    open.outcome = Outcome::kDone;
    return true;
  }

  // Pins both regions, copies without the lock. False: not all was copied.
  bool copy_pieces(Open& open, size_t pieces, uint64_t& budget) {
    const Piece first = piece(open.request, 0);
    Shared::Region* src = nullptr;
    Shared::Region* dst = nullptr;
    {
      const std::lock_guard lock(shared_->mutex);
      src = shared_->find(first.src);
      dst = shared_->find(first.dst);
      if (src == nullptr || dst == nullptr) {
        open.outcome = Outcome::kFailed;
        return false;
      }
      ++src->pins;
      ++dst->pins;
    }
    while (open.pieces_done < pieces && budget > 0) {
      const Piece p = piece(open.request, open.pieces_done++);
      std::memcpy(dst->data + p.dst_offset, src->data + p.src_offset, p.length);
      budget -= std::min(budget, p.length);
    }
    const std::lock_guard lock(shared_->mutex);
    --src->pins;
    --dst->pins;
    return open.pieces_done == pieces;
  }

  std::shared_ptr<Shared> shared_;
  EndpointId id_;
  std::deque<Open> open_;
  std::vector<Completion> completions_;
  uint64_t next_transfer_ = 1;
};

LoopbackFabric::LoopbackFabric(LoopbackLimits limits) : shared_(std::make_shared<Shared>(limits)) {}
LoopbackFabric::~LoopbackFabric() = default;

std::unique_ptr<Transport> LoopbackFabric::make_endpoint() {
  const std::lock_guard lock(shared_->mutex);
  const EndpointId id{shared_->next_endpoint++};
  shared_->inboxes.try_emplace(id);
  return std::make_unique<Endpoint>(shared_, id);
}

}  // namespace tandem::transfer
