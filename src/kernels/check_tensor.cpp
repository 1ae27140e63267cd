// SPDX-License-Identifier: Apache-2.0
#include "kernels/check_tensor.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tandem::kernels {

void check_tensor(const char* name, const Exec& exec, const Tensor& t, DType dtype,
                  std::initializer_list<int64_t> shape) {
  CHECK(t.rank == static_cast<int>(shape.size()) &&
            std::equal(shape.begin(), shape.end(), t.shape.begin()) && t.dtype == dtype,
        "{} is {}, wanted {} [{}]", name, t.describe(), dtype_name(dtype), fmt::join(shape, ","));
  CHECK(t.device == exec.device, "{} lies on another device", name);
  if (t.count() == 0) return;
  CHECK(t.data != nullptr, "{} {} has no data", name, t.describe());
  int64_t inner = 1;
  for (int axis = t.rank - 1; axis >= 1; --axis) {
    CHECK(t.size(axis) == 1 || t.stride[static_cast<size_t>(axis)] == inner,
          "{} {}: axis {} has stride {}, wanted {}", name, t.describe(), axis,
          t.stride[static_cast<size_t>(axis)], inner);
    inner *= t.size(axis);
  }
  CHECK(t.size(0) == 1 || t.stride[0] >= inner, "{} {}: rows overlap, stride {}", name,
        t.describe(), t.stride[0]);
}

}  // namespace tandem::kernels
