// SPDX-License-Identifier: Apache-2.0
// Exec: where an op runs: device, stream, scratch memory and the thread team of a CPU rank. Made
// once by the owner of a rank (a worker, a test, a bench) and passed to every op; ops allocate
// nothing themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/tensor.h"

namespace tandem {

// Splits [0, count) over the threads of a rank. body(begin, end) runs for disjoint ranges that
// cover all of it, in any order, on any thread; the call returns when all are done. Splitting never
// changes a result: no op reduces across ranges. A plain function object keeps threads out of core:
// app/ and tests make the team.
using ParallelFor =
    std::function<void(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>&)>;

// One after the other, in this thread.
void serial_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// Bump allocator over a buffer sized at start-up. take() never fails softly: a scratch overflow is
// a sizing bug.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(size_t bytes) : buffer_(bytes) {}

  template <typename T>
  [[nodiscard]] T* take(int64_t count) {
    return static_cast<T*>(take_bytes(static_cast<size_t>(count) * sizeof(T)));
  }
  [[nodiscard]] void* take_bytes(size_t bytes);  // 64-byte aligned, valid until reset(mark)
  [[nodiscard]] size_t mark() const { return used_; }
  void reset(size_t mark);
  [[nodiscard]] size_t bytes_max_used() const { return high_water_; }
  [[nodiscard]] size_t capacity_bytes() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
  size_t used_ = 0;
  size_t high_water_ = 0;
};

// Gives back what was taken since construction.
class ScratchScope {
 public:
  explicit ScratchScope(Scratch& scratch) : scratch_(scratch), mark_(scratch.mark()) {}
  ~ScratchScope() { scratch_.reset(mark_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  Scratch& scratch_;
  size_t mark_;
};

struct Exec {
  Device device{};
  void* stream = nullptr;  // cudaStream_t where device.kind is kCuda
  Scratch* scratch = nullptr;
  ParallelFor parallel_for = serial_for;
};

}  // namespace tandem
