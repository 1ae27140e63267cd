// SPDX-License-Identifier: Apache-2.0
#include "core/exec.h"

#include <algorithm>

namespace tandem {

void serial_for(int64_t count, int64_t /*grain*/,
                const std::function<void(int64_t, int64_t)>& body) {
  if (count > 0) body(0, count);
}

void* Scratch::take_bytes(size_t bytes) {
  const size_t rounded = (bytes + 63) / 64 * 64;
  CHECK(rounded <= buffer_.bytes() - used_, "scratch of {} bytes, {} used, {} wanted",
        buffer_.bytes(), used_, bytes);
  void* p = buffer_.data() + used_;
  used_ += rounded;
  high_water_ = std::max(high_water_, used_);
  return p;
}

void Scratch::reset(size_t mark) {
  CHECK(mark <= used_);
  used_ = mark;
}

}  // namespace tandem
