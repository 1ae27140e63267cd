// SPDX-License-Identifier: Apache-2.0
// Tokens per second of the whole forward pass at the shape of models/tandem-small with random
// weights: a prompt of 2,000 tokens in chunks of 512, and decode steps of 1, 16 and 64 sequences at
// position 1,000. The limit of a row is the time that its multiply-adds and the bytes of its cached
// keys and values need at this machine's measured rates.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "bench/report.h"
#include "kernels/bench_support.h"
#include "model/forward_test_support.h"

namespace tandem::model {
namespace {

constexpr int32_t kPageTokens = 64;
constexpr int32_t kPrompt = 2000;
constexpr int32_t kChunk = 512;
constexpr int32_t kDecodeAt = 1000;

struct Setup {
  ModelConfig config = small_moe_config();
  kernels::TestTeam team;
  kernels::TestExec exec;
  Model model;
  std::vector<float> logits;

  explicit Setup(int threads)
      : team(threads),
        exec(0, &team),
        model(Model::create(config, random_weights(config, 1), exec.exec)),
        logits(static_cast<size_t>(64 * config.vocab)) {
    exec.scratch = Scratch(model.scratch_bytes({.batch_rows_max = kChunk,
                                                .logit_rows_max = 64,
                                                .context_tokens_max = 4096,
                                                .page_tokens = kPageTokens}));
  }
  void run(const Batch& batch, const KvStore& kv) {
    const auto rows = static_cast<int64_t>(batch.logit_rows.size());
    model.forward(exec.exec, batch, kv,
                  Tensor::dense(logits.data(), DType::kF32, {rows, config.vocab}), {}, {});
  }
};

// Multiply-adds of one row at `position`, without the head.
double row_fma(const ModelConfig& c, double position) {
  const double q = c.q_heads * c.head_dim, kv = c.kv_heads * c.head_dim, h = c.hidden;
  const double mlp = 3.0 * h * c.moe_intermediate * c.experts_per_token + h * c.experts;
  return c.layers * (h * (2 * q + 2 * kv) + mlp + 2 * q * (position + 1));
}

void add(bench::Report& report, const kernels::MachineLimits& limits, const std::string& name,
         double tokens, double fma, double bytes, const bench::Timing& timing) {
  bench::Row row = bench::Row::rate("model/forward", name, tokens, "tok/s", timing);
  row.limit = tokens / kernels::limit_seconds(limits, 2 * fma, bytes);
  report.add(row);
}

void prefill(bench::Report& report, const kernels::MachineLimits& limits, int threads) {
  const std::string name = fmt::format("prompt of {}, {} threads", kPrompt, threads);
  if (!report.wants("model/forward", name)) return;
  Setup s(threads);
  const int32_t pages = (kPrompt + kPageTokens - 1) / kPageTokens;
  const KvStore kv(s.model.kv_layout(kPageTokens), pages);
  const std::vector<PageId> ids = scattered_pages(pages, static_cast<size_t>(pages), 1);
  const std::vector<int32_t> tokens = random_tokens(s.config, kPrompt, 1);
  const bench::Timing timing = bench::measure([&] {
    for (int32_t begin = 0; begin < kPrompt; begin += kChunk) {
      const int32_t count = std::min(kChunk, kPrompt - begin);
      const std::vector<SequenceRows> sequences{
          {.row_count = count, .position_begin = begin, .pages = ids}};
      std::vector<int32_t> wanted;
      if (begin + count == kPrompt) wanted.push_back(count - 1);
      s.run({.tokens =
                 std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
             .sequences = sequences,
             .logit_rows = wanted},
            kv);
    }
  });
  double fma = static_cast<double>(s.config.hidden) * s.config.vocab;
  for (int32_t p = 0; p < kPrompt; ++p) fma += row_fma(s.config, p);
  add(report, limits, name, kPrompt, fma, 0, timing);
}

void decode(bench::Report& report, const kernels::MachineLimits& limits, int threads,
            int32_t batch) {
  const std::string name = fmt::format("decode {} at {}, {} threads", batch, kDecodeAt, threads);
  if (!report.wants("model/forward", name)) return;
  Setup s(threads);
  const int32_t pages = kDecodeAt / kPageTokens + 1;
  const KvStore kv(s.model.kv_layout(kPageTokens), pages * batch);
  const std::vector<PageId> ids =
      scattered_pages(pages * batch, static_cast<size_t>(pages * batch), 1);
  std::vector<SequenceRows> sequences;
  for (int32_t i = 0; i < batch; ++i) {
    sequences.push_back({.row_begin = i,
                         .row_count = 1,
                         .position_begin = kDecodeAt,
                         .pages = std::span(ids).subspan(static_cast<size_t>(i * pages),
                                                         static_cast<size_t>(pages))});
  }
  std::vector<int32_t> wanted(static_cast<size_t>(batch));
  std::iota(wanted.begin(), wanted.end(), 0);
  const std::vector<int32_t> tokens = random_tokens(s.config, batch, 1);
  const bench::Timing timing = bench::measure(
      [&] { s.run({.tokens = tokens, .sequences = sequences, .logit_rows = wanted}, kv); });
  const double head = static_cast<double>(s.config.hidden) * s.config.vocab;
  const double fma = batch * (row_fma(s.config, kDecodeAt) + head);
  // The weights (26 MB) may stay in the last-level cache; the limit counts the cache pages alone.
  const double bytes =
      batch * 4.0 * s.config.layers * s.config.kv_heads * s.config.head_dim * kDecodeAt;
  add(report, limits, name, batch, fma, bytes, timing);
}

}  // namespace
}  // namespace tandem::model

int main(int argc, char** argv) {
  using namespace tandem;
  bench::Report report(argc, argv, "forward pass, shape of tandem-small");
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<int> teams{1};
  if (cores > 1) teams.push_back(cores);
  for (const int threads : teams) {
    kernels::TestTeam team(threads);
    const kernels::TestExec exec(0, &team);
    const kernels::MachineLimits limits = kernels::measure_limits(exec.exec, threads);
    report.note(
        fmt::format("{} threads: {:.1f} GB/s read, {:.1f} GFLOP/s f32, measured in this run",
                    threads, limits.read_bytes_per_s / 1e9, limits.flops_per_s / 1e9));
    model::prefill(report, limits, threads);
    for (const int32_t batch : {1, 16, 64}) model::decode(report, limits, threads, batch);
  }
  return report.finish();
}
