// SPDX-License-Identifier: Apache-2.0
// Tensor: a view of memory with dtype, shape and strides; it owns nothing. Buffer: owned, aligned
// memory. Shapes are written behind every tensor line in brackets: [T,H].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "core/check.h"
#include "core/dtype.h"

namespace tandem {

enum class DeviceKind : uint8_t { kCpu, kCuda };
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(Device, Device) = default;
};

struct Tensor {
  static constexpr int kRankMax = 4;

  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kRankMax> shape{};
  std::array<int64_t, kRankMax> stride{};  // in elements
  Device device{};

  // A row-major view of `data`.
  static Tensor dense(void* data, DType dtype, std::initializer_list<int64_t> shape,
                      Device device = {});

  template <typename T>
  [[nodiscard]] T* as() const {
    CHECK(dtype == DTypeOf<T>::value, "tensor is {}", dtype_name(dtype));
    return static_cast<T*>(data);
  }
  template <typename T>
  [[nodiscard]] T* row(int64_t i) const {
    return as<T>() + i * stride[0];
  }
  [[nodiscard]] int64_t size(int axis) const { return shape[static_cast<size_t>(axis)]; }
  [[nodiscard]] int64_t count() const;                          // elements
  [[nodiscard]] size_t bytes() const;                           // of a dense tensor
  [[nodiscard]] bool is_dense() const;                          // row major without gaps
  [[nodiscard]] Tensor rows(int64_t begin, int64_t end) const;  // a slice of axis 0
  [[nodiscard]] std::string describe() const;                   // "bf16 [3,256]"
};

// Memory aligned to 64 bytes. Fresh memory is zero, so nobody's old bytes can be read from it.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  template <typename T>
  [[nodiscard]] std::span<T> span_of() const {
    return {reinterpret_cast<T*>(data_.get()), bytes_ / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

}  // namespace tandem
