// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <cstring>

namespace tandem {

Tensor Tensor::dense(void* data, DType dtype, std::initializer_list<int64_t> shape, Device device) {
  CHECK(shape.size() <= kRankMax);
  Tensor t{.data = data, .dtype = dtype, .rank = static_cast<int>(shape.size()), .device = device};
  int axis = 0;
  for (const int64_t extent : shape) {
    CHECK(extent >= 0, "extent {}", extent);
    t.shape[static_cast<size_t>(axis++)] = extent;
  }
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.stride[static_cast<size_t>(i)] = stride;
    stride *= t.shape[static_cast<size_t>(i)];
  }
  return t;
}

int64_t Tensor::count() const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= size(i);
  return n;
}

size_t Tensor::bytes() const {
  return static_cast<size_t>(count()) * dtype_bytes(dtype);
}

bool Tensor::is_dense() const {
  int64_t expected = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (size(i) != 1 && stride[static_cast<size_t>(i)] != expected) return false;
    expected *= size(i);
  }
  return true;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  CHECK(rank >= 1 && 0 <= begin && begin <= end && end <= size(0), "rows {}..{} of {}", begin, end,
        describe());
  Tensor t = *this;
  t.data =
      static_cast<std::byte*>(data) + begin * stride[0] * static_cast<int64_t>(dtype_bytes(dtype));
  t.shape[0] = end - begin;
  return t;
}

std::string Tensor::describe() const {
  return fmt::format("{} [{}]", dtype_name(dtype),
                     fmt::join(shape.begin(), shape.begin() + rank, ","));
}

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const size_t rounded = (bytes + 63) / 64 * 64;
  auto* p = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  CHECK(p != nullptr, "{} bytes", bytes);
  std::memset(p, 0, rounded);
  data_.reset(p);
}

void Buffer::Free::operator()(std::byte* p) const {
  std::free(p);
}

}  // namespace tandem
