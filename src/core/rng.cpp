// SPDX-License-Identifier: Apache-2.0
#include "core/rng.h"

#include <cmath>
#include <numbers>

#include "core/check.h"

namespace tandem {

std::array<uint32_t, 4> philox4x32(PhiloxCounter c, PhiloxKey k) {
  constexpr uint32_t kMul0 = 0xD2511F53U;
  constexpr uint32_t kMul1 = 0xCD9E8D57U;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMul0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kMul1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9U;
    k[1] += 0xBB67AE85U;
  }
  return c;
}

uint32_t Rng::next_u32() {
  if (left_ == 0) {
    out_ = philox4x32({static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32),
                       static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                      key_);
    ++block_;
    left_ = 4;
  }
  return out_[static_cast<size_t>(4 - left_--)];
}

uint64_t Rng::below(uint64_t bound) {
  CHECK(bound > 0);
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t x = next_u64();
  while (x >= limit) x = next_u64();
  return x % bound;
}

float Rng::normal() {
  const float u = uniform();
  const float v = uniform();
  return std::sqrt(-2.0F * std::log(u)) * std::cos(2.0F * std::numbers::pi_v<float> * v);
}

}  // namespace tandem
