// SPDX-License-Identifier: Apache-2.0
// What every op checks of its tensors, once for all devices. Only the <op>.cpp files call it.
#pragma once

#include <initializer_list>

#include "core/exec.h"
#include "core/tensor.h"

namespace tandem::kernels {

// Ends the process unless `t` has this dtype and shape, lies on the Exec's device, has elements of
// the last axis side by side, and axes 1.. without gaps (rows may have any stride that does not
// overlap them).
void check_tensor(const char* name, const Exec& exec, const Tensor& t, DType dtype,
                  std::initializer_list<int64_t> shape);

}  // namespace tandem::kernels
