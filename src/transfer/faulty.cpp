// SPDX-License-Identifier: Apache-2.0
#include "transfer/faulty.h"

#include <utility>

#include "core/check.h"

namespace tandem::transfer {
namespace {

constexpr size_t kOpenMax = 4096;

// Where the first piece of a write begins in its source and destination.
struct Edge {
  MemoryHandle src, dst;
  uint64_t src_offset = 0, dst_offset = 0, length = 0;
};

std::optional<Edge> some_piece(const Request& request, Rng& rng) {
  if (const auto* w = std::get_if<SingleWrite>(&request.op)) {
    if (w->length == 0) return std::nullopt;
    return Edge{w->src, w->dst, w->src_offset, w->dst_offset, w->length};
  }
  const auto* w = std::get_if<PagedWrite>(&request.op);
  if (w == nullptr || w->src_indices.empty() || w->length == 0) return std::nullopt;
  const size_t i = rng.below(w->src_indices.size());
  return Edge{w->src, w->dst,
              w->src_base + static_cast<uint64_t>(w->src_indices[i]) * w->src_stride,
              w->dst_base + static_cast<uint64_t>(w->dst_indices[i]) * w->dst_stride, w->length};
}

Request count_only(const Request& request) {
  return {.op = Immediate{.dst = destination(request)},
          .owner = request.owner,
          .parts = request.parts,
          .deadline = request.deadline};
}

}  // namespace

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, FaultPlan plan, uint64_t seed)
    : inner_(std::move(inner)), plan_(plan), rng_(seed, 0xfa017), flipped_(kOpenMax) {
  auto handle = inner_->register_memory(flipped_.span_of<std::byte>());
  flipped_handle_ = handle.value();
}

Result<MemoryHandle> FaultyTransport::register_memory(std::span<std::byte> memory) {
  const MemoryHandle handle = TRY(inner_->register_memory(memory));
  regions_[handle.key] = memory;
  return handle;
}

bool FaultyTransport::deregister_memory(const MemoryHandle& memory) {
  if (!inner_->deregister_memory(memory)) return false;
  regions_.erase(memory.key);
  return true;
}

bool FaultyTransport::draw(Fault fault) {
  const float p = plan_.probability[static_cast<size_t>(fault)];
  if (p <= 0.0F || rng_.uniform() >= p) return false;
  ++injected_[static_cast<size_t>(fault)];
  return true;
}

Result<std::optional<TransferId>> FaultyTransport::submit(Request request) {
  TRY(check_request(request, id()));
  if (open_.size() + completions_.size() >= kOpenMax || draw(Fault::kBusy)) {
    return std::optional<TransferId>();
  }
  Open open{.id = {next_transfer_++}, .owner = request.owner, .deadline = request.deadline};
  if (draw(Fault::kDelay)) {
    open.wait_until_step = steps_ + rng_.between(1, plan_.delay_steps_max);
  }
  std::optional<Open> repeat;
  if (request.parts && draw(Fault::kRepeatCount)) {
    repeat = Open{.owner = request.owner,
                  .deadline = TimePoint::max(),
                  .wait_until_step = steps_ + rng_.between(1, plan_.delay_steps_max),
                  .ghost = true};
    repeat->sequence.push_back(count_only(request));
    repeat->sequence.back().deadline = TimePoint::max();
  }
  const TransferId id = open.id;
  plan_bytes(open, std::move(request));
  open_.push_back(std::move(open));
  if (repeat) open_.push_back(std::move(*repeat));
  return std::optional(id);
}

void FaultyTransport::plan_bytes(Open& open, Request request) {
  if (draw(Fault::kFail)) {
    open.outcome = Outcome::kFailed;
  } else if (draw(Fault::kLose)) {
    open.outcome = Outcome::kDone;
  } else if (draw(Fault::kLoseBytes)) {
    open.sequence.push_back(count_only(request));
  } else if (draw(Fault::kCorrupt)) {
    add_corrupted(open, std::move(request));
  } else if (draw(Fault::kWriteTwice)) {
    open.sequence.push_back(request);
    open.sequence.push_back(std::move(request));
    open.sequence.back().parts.reset();
  } else {
    open.sequence.push_back(std::move(request));
  }
}

void FaultyTransport::add_corrupted(Open& open, Request request) {
  const std::optional<Edge> edge = some_piece(request, rng_);
  const Request count = count_only(request);
  request.parts.reset();
  const HandoffKey owner = request.owner;
  open.sequence.push_back(std::move(request));
  if (edge) {
    const uint64_t at = rng_.below(edge->length);
    const uint64_t slot = next_flipped_++ % kOpenMax;
    const std::byte truth = regions_.at(edge->src.key)[edge->src_offset + at];
    flipped_.data()[slot] = truth ^ static_cast<std::byte>(1U << rng_.below(8));
    open.sequence.push_back({.op = SingleWrite{.length = 1,
                                               .src = flipped_handle_,
                                               .src_offset = slot,
                                               .dst = edge->dst,
                                               .dst_offset = edge->dst_offset + at},
                             .owner = owner});
  }
  open.sequence.push_back(count);
}

void FaultyTransport::cancel(HandoffKey owner) {
  for (Open& open : open_) open.cancelled |= open.owner == owner && !open.ghost;
  inner_->cancel(owner);
}

void FaultyTransport::advance(Open& open, TimePoint now) {
  if (open.moving || steps_ < open.wait_until_step) return;
  if (open.outcome) return;
  if (open.cancelled) {
    open.outcome = Outcome::kCancelled;
  } else if (now >= open.deadline) {
    open.outcome = Outcome::kExpired;
  } else if (open.sequence.empty()) {
    open.outcome = Outcome::kDone;
  } else {
    auto id = inner_->submit(open.sequence.front());
    if (!id.ok()) {
      open.outcome = Outcome::kFailed;
    } else if (*id) {
      open.moving = *id;
      open.sequence.pop_front();
    }
  }
}

void FaultyTransport::step(TimePoint now) {
  ++steps_;
  for (Open& open : open_) {
    // Neither a cancel nor a deadline waits for the delay.
    const bool over = open.cancelled || now >= open.deadline;
    if (over && !open.moving && !open.outcome) open.wait_until_step = 0;
    advance(open, now);
  }
  inner_->step(now);
  std::vector<Completion> inner_done;
  inner_->take_completions(inner_done);
  for (const Completion& done : inner_done) {
    for (Open& open : open_) {
      if (open.moving != done.id) continue;
      open.moving.reset();
      if (done.outcome != Outcome::kDone) open.outcome = done.outcome;
      advance(open, now);
    }
  }
  std::erase_if(open_, [this](const Open& open) {
    const bool ended = open.outcome && !open.moving && steps_ >= open.wait_until_step;
    if (ended && !open.ghost) {
      completions_.push_back({.id = open.id, .owner = open.owner, .outcome = *open.outcome});
    }
    return ended;
  });
}

void FaultyTransport::take_completions(std::vector<Completion>& out) {
  out.insert(out.end(), completions_.begin(), completions_.end());
  completions_.clear();
}

}  // namespace tandem::transfer
