// SPDX-License-Identifier: Apache-2.0
// A bounded queue between two threads: full is an answer, and taking never waits. The workers'
// messages go through it.
#pragma once

#include <functional>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace tandem::engine {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t max) : max_(max) {}

  // False: full, `item` is untouched.
  [[nodiscard]] bool try_push(T& item) {
    {
      const std::lock_guard lock(mutex_);
      if (items_.size() >= max_) return false;
      items_.push_back(std::move(item));
    }
    if (notify_) notify_();
    return true;
  }
  void take(std::vector<T>& out) {  // appends; empties the queue
    const std::lock_guard lock(mutex_);
    out.insert(out.end(), std::make_move_iterator(items_.begin()),
               std::make_move_iterator(items_.end()));
    items_.clear();
  }
  [[nodiscard]] bool empty() const {
    const std::lock_guard lock(mutex_);
    return items_.empty();
  }
  // Called after each push, from the pushing thread. Set before any thread starts.
  void on_push(std::function<void()> notify) { notify_ = std::move(notify); }

 private:
  const size_t max_;
  mutable std::mutex mutex_;
  std::vector<T> items_;
  std::function<void()> notify_;
};

}  // namespace tandem::engine
