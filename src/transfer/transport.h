// SPDX-License-Identifier: Apache-2.0
// Transport: one worker's end of whatever moves KV pages. engine/ submits, steps and polls; nothing
// blocks, nothing calls back. All calls on one endpoint come from its owner's thread; endpoints of
// different threads may talk to each other.
//
// Order is never promised. What is promised: parts are told to the receiver only after their bytes
// stand there; every accepted request ends in exactly one Completion; after a request's Completion
// no byte of it is read or written, so its pages may be reused on both sides.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "transfer/request.h"

namespace tandem::transfer {

class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual EndpointId id() const = 0;

  // The memory must stay until deregister_memory has returned true.
  [[nodiscard]] virtual Result<MemoryHandle> register_memory(std::span<std::byte> memory) = 0;
  // False: a write to or from it is moving now; call again later. True: later requests that name
  // the handle end as kFailed. An unknown handle is a bug of the caller.
  [[nodiscard]] virtual bool deregister_memory(const MemoryHandle& memory) = 0;

  // Nothing: too many requests are open or unpolled, try again after a step. Errors:
  // kInvalidArgument as in check_request.
  [[nodiscard]] virtual Result<std::optional<TransferId>> submit(Request request) = 0;
  // Stops the owner's requests as soon as their bytes may be left alone. Each still gets its
  // Completion: kCancelled, or what it was before the cancel reached it.
  virtual void cancel(HandoffKey owner) = 0;

  virtual void step(TimePoint now) = 0;  // a bounded amount of work; deadlines are looked at here
  virtual void take_completions(std::vector<Completion>& out) = 0;  // appends
  virtual void take_arrivals(std::vector<Parts>& out) = 0;          // appends; receiver's side
};

}  // namespace tandem::transfer
