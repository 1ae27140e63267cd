// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: random numbers as a pure function of (key, counter), for sampling, tests and the
// simulator. Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011;
// constants and known answers as in Random123.
#pragma once

#include <array>
#include <cstdint>

namespace tandem {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

[[nodiscard]] std::array<uint32_t, 4> philox4x32(PhiloxCounter counter, PhiloxKey key);

// Uniform in (0, 1): 23 bits plus a half, so neither end can occur.
[[nodiscard]] constexpr float uniform_open(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5F) * (1.0F / 8388608.0F);
}

// A seeded stream for tests, load generators and jitter. Not for sampling tokens: that is
// position-addressed.
class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, stream_(stream) {}

  uint32_t next_u32();
  uint64_t next_u64() { return (static_cast<uint64_t>(next_u32()) << 32) | next_u32(); }
  uint64_t below(uint64_t bound);  // uniform in [0, bound), bound > 0, without modulo bias
  int64_t between(int64_t low, int64_t high) {  // inclusive
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }
  float uniform() { return uniform_open(next_u32()); }
  float normal();  // mean 0, variance 1 (Box-Muller)

 private:
  PhiloxKey key_;
  uint64_t stream_;
  uint64_t block_ = 0;
  std::array<uint32_t, 4> out_{};
  int left_ = 0;
};

}  // namespace tandem
