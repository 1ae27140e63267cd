// SPDX-License-Identifier: Apache-2.0
// What the tests and benches of kernels/ and model/ share: a thread team, seeded tensors with
// sentinels behind them, comparison under a bound. Not part of the engine.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/exec.h"
#include "core/rng.h"
#include "core/tensor.h"

namespace tandem::kernels {

// A fixed team; ranges are cut to `grain` and dealt round robin, so that every thread works.
class TestTeam {
 public:
  explicit TestTeam(int threads);
  ~TestTeam();
  TestTeam(const TestTeam&) = delete;
  TestTeam& operator=(const TestTeam&) = delete;
  [[nodiscard]] ParallelFor parallel_for();

 private:
  struct Job {
    int64_t count = 0, grain = 1;
    const std::function<void(int64_t, int64_t)>* body = nullptr;
  };
  void run(const Job& job, int64_t thread) const;
  void loop(int64_t thread);

  int64_t threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Job job_;
  uint64_t generation_ = 0;
  int64_t busy_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> helpers_;
};

// An Exec with its own scratch, on one thread unless a team is given.
struct TestExec {
  explicit TestExec(size_t scratch_bytes = size_t{64} << 20, TestTeam* team = nullptr);
  Scratch scratch;
  Exec exec;
};

// Owned memory under a tensor, with a stretch of sentinels behind it.
class TestTensor {
 public:
  TestTensor(DType dtype, std::initializer_list<int64_t> shape);
  [[nodiscard]] const Tensor& view() const { return view_; }
  [[nodiscard]] operator const Tensor&() const { return view_; }  // NOLINT: reads like a tensor
  [[nodiscard]] bool sentinels_intact() const;
  TestTensor& fill_normal(Rng& rng, float scale = 1.0F, float mean = 0.0F);
  TestTensor& fill_bytes(int byte);
  [[nodiscard]] double at(int64_t flat) const;  // of bf16, f32 or i32
  [[nodiscard]] bool same_bits(const TestTensor& other) const;

 private:
  Buffer bytes_;
  Tensor view_;
};

// Collects |got - want| / bound and says where it was worst.
class Worst {
 public:
  void see(int64_t at, double got, double want, double bound);
  [[nodiscard]] bool ok() const { return ratio_ <= 1.0; }
  [[nodiscard]] double ratio() const { return ratio_; }
  [[nodiscard]] std::string text() const;

 private:
  double ratio_ = -1.0, got_ = 0, want_ = 0, bound_ = 0;
  int64_t at_ = -1;
};

}  // namespace tandem::kernels
