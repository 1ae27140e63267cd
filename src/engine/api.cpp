// SPDX-License-Identifier: Apache-2.0
#include "engine/api.h"

#include <iterator>

namespace tandem::engine {

bool Link::try_submit(Submit& request) {
  {
    const std::lock_guard lock(mutex_);
    if (work_.submits.size() >= queued_submits_max_) return false;
    work_.submits.push_back(std::move(request));
  }
  work_ready_.notify_one();
  return true;
}

void Link::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    work_.cancels.push_back(id);
  }
  work_ready_.notify_one();
}

void Link::take_events(std::vector<TokenEvent>& out) {
  const std::lock_guard lock(mutex_);
  if (out.empty()) {
    out.swap(events_);
    return;
  }
  out.insert(out.end(), std::make_move_iterator(events_.begin()),
             std::make_move_iterator(events_.end()));
  events_.clear();
}

EngineStatus Link::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Link::take_work(Work& out) {
  const std::lock_guard lock(mutex_);
  out.submits.insert(out.submits.end(), std::make_move_iterator(work_.submits.begin()),
                     std::make_move_iterator(work_.submits.end()));
  out.cancels.insert(out.cancels.end(), work_.cancels.begin(), work_.cancels.end());
  work_.submits.clear();
  work_.cancels.clear();
}

void Link::wait_for_work(Duration at_most) {
  std::unique_lock lock(mutex_);
  work_ready_.wait_for(lock, at_most, [this] { return woken_ || !work_.empty(); });
  woken_ = false;
}

void Link::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  work_ready_.notify_one();
}

void Link::emit(std::vector<TokenEvent>&& events) {
  if (events.empty()) return;
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    was_empty = events_.empty();
    events_.insert(events_.end(), std::make_move_iterator(events.begin()),
                   std::make_move_iterator(events.end()));
  }
  events.clear();
  if (was_empty && notify_) notify_();
}

void Link::publish(EngineStatus status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

}  // namespace tandem::engine
