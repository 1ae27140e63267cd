// SPDX-License-Identifier: Apache-2.0
// What the op benches share: the limits of this machine, measured in the same run, and the list of
// benches. kernels_bench.cpp runs them; forward_bench uses the limits.
#pragma once

#include <cstdint>

#include "bench/report.h"
#include "kernels/test_support.h"

namespace tandem::kernels {

struct MachineLimits {
  double read_bytes_per_s = 0;  // best of plain reads over memory larger than the caches
  double flops_per_s = 0;       // f32 fused multiply-adds on registers, two FLOP each
};
[[nodiscard]] MachineLimits measure_limits(const Exec& exec, int threads);

struct OpBench {
  bench::Report& report;
  MachineLimits limits;
  TestExec& exec;
};

// The time that `flops` and `bytes` need at least.
[[nodiscard]] double limit_seconds(const MachineLimits& limits, double flops, double bytes);
// A row in GFLOP/s or GB/s, whichever limit binds, with that limit.
void add_row(const OpBench& b, const char* name, const char* case_name, double flops, double bytes,
             const bench::Timing& timing, const bench::Timing* peer = nullptr,
             const char* peer_name = "");

void bench_attention(const OpBench& b);
void bench_embedding(const OpBench& b);
void bench_linear(const OpBench& b);
void bench_moe(const OpBench& b);
void bench_qk_norm_rope_kv_write(const OpBench& b);
void bench_rms_norm(const OpBench& b);
void bench_router(const OpBench& b);
void bench_silu_mul(const OpBench& b);

}  // namespace tandem::kernels
