// SPDX-License-Identifier: Apache-2.0
#include "kernels/bench_support.h"

#include <algorithm>
#include <chrono>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem::kernels {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double best_of(int repeats, const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) best = std::min(best, seconds_of(work));
  return best;
}

constexpr int64_t kFmaSteps = 200'000;
constexpr int64_t kFmaFlopsPerStep = 12 * 8 * 2;

#if defined(__x86_64__)
// Twelve independent chains of 8-wide multiply-adds: more than latency times units.
__attribute__((target("avx2,fma"))) void fma_loop() {
  __m256 a[12];
  for (__m256& x : a) x = _mm256_set1_ps(1.0F);
  const __m256 m = _mm256_set1_ps(0.999F), c = _mm256_set1_ps(0.001F);
  for (int64_t i = 0; i < kFmaSteps; ++i) {
#pragma GCC unroll 12
    for (__m256& x : a) x = _mm256_fmadd_ps(x, m, c);
  }
  for (const __m256& x : a) {
    const float first = _mm256_cvtss_f32(x);
    bench::keep(&first);
  }
}
bool has_fma() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
void fma_loop() {}
bool has_fma() {
  return false;
}
#endif

}  // namespace

MachineLimits measure_limits(const Exec& exec, int threads) {
  MachineLimits limits;
  // Short slices, the best of many: another process on the core then spoils some of them, not all.
  // Each slice was pushed out of the caches by the fifteen others since it was last read.
  constexpr int64_t kSlices = 16, kWords = int64_t{2} << 20;  // 16 MiB each
  const std::vector<uint64_t> memory(static_cast<size_t>(kSlices * kWords), 1);
  const auto read = [&](const uint64_t* slice) {
    exec.parallel_for(kWords, kWords / threads, [&](int64_t begin, int64_t end) {
      uint64_t sum[8] = {};
      for (int64_t i = begin; i + 8 <= end; i += 8) {
        for (int64_t j = 0; j < 8; ++j) sum[j] += slice[i + j];
      }
      bench::keep(&sum[0]);
    });
  };
  double best = 1e9;
  for (int64_t i = 0; i < 8 * kSlices; ++i) {
    const uint64_t* slice = memory.data() + i % kSlices * kWords;
    best = std::min(best, seconds_of([&] { read(slice); }));
  }
  limits.read_bytes_per_s = static_cast<double>(kWords) * 8 / best;
  if (has_fma()) {
    const auto work = [&] {
      exec.parallel_for(threads, 1, [](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) fma_loop();
      });
    };
    limits.flops_per_s =
        static_cast<double>(kFmaSteps * kFmaFlopsPerStep) * threads / best_of(200, work);
  }
  return limits;
}

double limit_seconds(const MachineLimits& limits, double flops, double bytes) {
  return std::max(flops / limits.flops_per_s, bytes / limits.read_bytes_per_s);
}

void add_row(const OpBench& b, const char* name, const char* case_name, double flops, double bytes,
             const bench::Timing& timing, const bench::Timing* peer, const char* peer_name) {
  const bool compute = flops / b.limits.flops_per_s > bytes / b.limits.read_bytes_per_s;
  const double work = (compute ? flops : bytes) / 1e9;
  bench::Row row = bench::Row::rate(name, case_name, work, compute ? "GFLOP/s" : "GB/s", timing);
  row.limit = (compute ? b.limits.flops_per_s : b.limits.read_bytes_per_s) / 1e9;
  if (peer != nullptr) {
    row.peer = peer_name;
    row.peer_value = work / peer->median_s;
  }
  b.report.add(row);
}

}  // namespace tandem::kernels
