// SPDX-License-Identifier: Apache-2.0
// How fast a checkpoint loads, beside reading the same bytes and doing nothing with them. The file
// is warm in the page cache, so this is the loader's own cost and not a disk's.
#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "bench/report.h"
#include "core/check.h"
#include "model/safetensors_test_files.h"
#include "model/weights.h"

namespace {

using namespace tandem;

model::ModelConfig config_of_200_mb() {
  model::ModelConfig c;
  c.family = model::Family::kQwen3Moe;
  c.hidden = 1024;
  c.layers = 4;
  c.q_heads = 16;
  c.kv_heads = 4;
  c.head_dim = 128;
  c.experts = 16;
  c.experts_per_token = 4;
  c.moe_intermediate = 384;
  c.layer_is_moe.assign(4, true);
  c.vocab = 8192;
  c.max_position = 4096;
  return c;
}

// The bound: the file's bytes by pread, in the loader's piece size, into fresh memory.
void plain_read(const std::filesystem::path& file, size_t bytes) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  const Buffer buffer(bytes);
  size_t done = 0;
  while (done < bytes) {
    const size_t piece = std::min<size_t>(bytes - done, 1U << 20U);
    const ssize_t got = ::pread(fd, buffer.data() + done, piece, static_cast<off_t>(done));
    CHECK(got > 0);
    done += static_cast<size_t>(got);
  }
  bench::keep(buffer.data());
  ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report(argc, argv, "Loading weights, one core, file in the page cache");
  const model::ModelConfig config = config_of_200_mb();
  const model::TempFolder folder;
  folder.write("model.safetensors", model::safetensors_file(model::random_tensors(config, 1)));
  const auto file = folder / "model.safetensors";
  const auto bytes = static_cast<size_t>(std::filesystem::file_size(file));
  const double megabytes = static_cast<double>(bytes) / 1e6;

  const bench::Timing limit = bench::measure([&] { plain_read(file, bytes); });
  for (const bool refuse_nan : {true, false}) {
    const bench::Timing timing = bench::measure([&] {
      const auto checkpoint = model::Checkpoint::open(folder.path());
      const auto weights =
          model::load_weights(config, checkpoint.value(), {.refuse_nan = refuse_nan});
      CHECK(weights.ok());
      bench::keep(&weights.value());
    });
    bench::Row row =
        bench::Row::rate("loader/load_weights",
                         fmt::format("{:.0f} MB bf16{}", megabytes, refuse_nan ? ", NaN scan" : ""),
                         megabytes, "MB/s", timing);
    row.limit = megabytes / limit.median_s;
    report.add(row);
  }
  const bench::Timing random = bench::measure([&] {
    const model::Weights weights = model::random_weights(config, 1);
    bench::keep(&weights);
  });
  report.add(bench::Row::rate("loader/random_weights", fmt::format("{:.0f} MB", megabytes),
                              megabytes, "MB/s", random));
  report.note("limit: pread of the same bytes into zeroed memory");
  return report.finish();
}
