// SPDX-License-Identifier: Apache-2.0
// Every op on one thread against this core's measured read bandwidth and multiply-add rate.
#include <fmt/format.h>

#include "kernels/bench_support.h"

int main(int argc, char** argv) {
  using namespace tandem;
  bench::Report report(argc, argv, "CPU kernels, one thread");
  kernels::TestExec exec(size_t{256} << 20);
  const kernels::MachineLimits limits = kernels::measure_limits(exec.exec, 1);
  report.note(
      fmt::format("limits measured in this run, one thread: {:.1f} GB/s read, {:.1f} GFLOP/s f32",
                  limits.read_bytes_per_s / 1e9, limits.flops_per_s / 1e9));
  report.note("small cases stay in the caches and pass the memory limit");
  const kernels::OpBench b{.report = report, .limits = limits, .exec = exec};
  kernels::bench_linear(b);
  kernels::bench_moe(b);
  kernels::bench_attention(b);
  kernels::bench_router(b);
  kernels::bench_embedding(b);
  kernels::bench_rms_norm(b);
  kernels::bench_silu_mul(b);
  kernels::bench_qk_norm_rope_kv_write(b);
  return report.finish();
}
