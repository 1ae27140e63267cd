// SPDX-License-Identifier: Apache-2.0
#include "kernels/test_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tandem::kernels {
namespace {

constexpr size_t kSentinelBytes = 256;
constexpr int kSentinel = 0x5a;

}  // namespace

TestTeam::TestTeam(int threads) : threads_(threads) {
  for (int64_t i = 1; i < threads_; ++i) helpers_.emplace_back([this, i] { loop(i); });
}

TestTeam::~TestTeam() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& t : helpers_) t.join();
}

void TestTeam::run(const Job& job, int64_t thread) const {
  const int64_t pieces = (job.count + job.grain - 1) / job.grain;
  for (int64_t piece = thread; piece < pieces; piece += threads_) {
    (*job.body)(piece * job.grain, std::min(job.count, (piece + 1) * job.grain));
  }
}

void TestTeam::loop(int64_t thread) {
  uint64_t seen = 0;
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
      job = job_;
    }
    run(job, thread);
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) changed_.notify_all();
  }
}

ParallelFor TestTeam::parallel_for() {
  return [this](int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
    const Job job{.count = count, .grain = std::max<int64_t>(1, grain), .body = &body};
    if (count <= job.grain) return serial_for(count, grain, body);
    {
      const std::lock_guard lock(mutex_);
      job_ = job;
      busy_ = threads_ - 1;
      ++generation_;
    }
    changed_.notify_all();
    run(job, 0);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return busy_ == 0; });
  };
}

TestExec::TestExec(size_t scratch_bytes, TestTeam* team) : scratch(scratch_bytes) {
  exec.scratch = &scratch;
  if (team != nullptr) exec.parallel_for = team->parallel_for();
}

TestTensor::TestTensor(DType dtype, std::initializer_list<int64_t> shape)
    : view_(Tensor::dense(nullptr, dtype, shape)) {
  bytes_ = Buffer(view_.bytes() + kSentinelBytes);
  view_.data = bytes_.data();
  std::memset(bytes_.data() + view_.bytes(), kSentinel, kSentinelBytes);
}

bool TestTensor::sentinels_intact() const {
  const auto all = bytes_.span_of<unsigned char>();
  return std::all_of(all.begin() + static_cast<int64_t>(view_.bytes()), all.end(),
                     [](unsigned char c) { return c == kSentinel; });
}

TestTensor& TestTensor::fill_normal(Rng& rng, float scale, float mean) {
  for (int64_t i = 0; i < view_.count(); ++i) {
    const float x = mean + scale * rng.normal();
    if (view_.dtype == DType::kBf16) {
      view_.as<bf16>()[i] = bf16(x);
    } else {
      view_.as<float>()[i] = x;
    }
  }
  return *this;
}

TestTensor& TestTensor::fill_bytes(int byte) {
  std::memset(bytes_.data(), byte, view_.bytes());
  return *this;
}

double TestTensor::at(int64_t flat) const {
  switch (view_.dtype) {
    case DType::kBf16:
      return static_cast<double>(static_cast<float>(view_.as<bf16>()[flat]));
    case DType::kI32:
      return view_.as<int32_t>()[flat];
    default:
      return static_cast<double>(view_.as<float>()[flat]);
  }
}

bool TestTensor::same_bits(const TestTensor& other) const {
  return view_.bytes() == other.view_.bytes() &&
         std::memcmp(bytes_.data(), other.bytes_.data(), view_.bytes()) == 0;
}

void Worst::see(int64_t at, double got, double want, double bound) {
  const double error = std::abs(got - want);
  // A NaN on either side is worse than any number.
  const double ratio = std::isfinite(error) ? (error == 0.0 ? 0.0 : error / bound) : INFINITY;
  if (ratio <= ratio_) return;
  ratio_ = ratio;
  at_ = at;
  got_ = got;
  want_ = want;
  bound_ = bound;
}

std::string Worst::text() const {
  return fmt::format(
      "worst at {}: got {:.9g}, want {:.9g}, error {:.3g}, bound {:.3g} ({:.2f} of it)", at_, got_,
      want_, std::abs(got_ - want_), bound_, ratio_);
}

}  // namespace tandem::kernels
