// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/clock.h"
#include "core/dtype.h"
#include "core/exec.h"
#include "core/ids.h"
#include "core/result.h"
#include "core/rng.h"
#include "core/tensor.h"

namespace tandem {
namespace {

// Known answers of Random123's kat_vectors for philox4x32-10.
TEST(Rng, PhiloxKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, StreamsAreSeededAndBounded) {
  Rng a(7), b(7), c(8);
  bool differs = false;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t x = a.below(10);
    EXPECT_LT(x, 10U);
    EXPECT_EQ(x, b.below(10));
    differs |= x != c.below(10);
  }
  EXPECT_TRUE(differs);
  EXPECT_GT(uniform_open(0), 0.0F);
  EXPECT_LT(uniform_open(0xffffffffU), 1.0F);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(bf16(1.0F).bits, 0x3f80);
  EXPECT_EQ(bf16(1.0F + 1.0F / 256).bits, 0x3f80);  // halfway, to even: down
  EXPECT_EQ(bf16(1.0F + 3.0F / 256).bits, 0x3f82);  // halfway, to even: up
  EXPECT_EQ(bf16(1.0F + 1.01F / 256).bits, 0x3f81);
  EXPECT_TRUE(std::isinf(static_cast<float>(bf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::numeric_limits<float>::signaling_NaN()))));
  for (uint32_t bits = 0; bits < 0x10000;
       ++bits) {  // every value that is not NaN survives the round trip
    bf16 x;
    x.bits = static_cast<uint16_t>(bits);
    const float f = static_cast<float>(x);
    if (!std::isnan(f)) {
      EXPECT_EQ(bf16(f).bits, bits);
    }
  }
}

TEST(Tensor, StridesSlicesAndNames) {
  std::array<float, 24> data{};
  const Tensor t = Tensor::dense(data.data(), DType::kF32, {2, 3, 4});
  EXPECT_EQ(t.stride[0], 12);
  EXPECT_EQ(t.count(), 24);
  EXPECT_EQ(t.bytes(), 96U);
  EXPECT_TRUE(t.is_dense());
  EXPECT_EQ(t.describe(), "f32 [2,3,4]");
  EXPECT_EQ(t.rows(1, 2).as<float>(), data.data() + 12);
  EXPECT_DEATH((void)t.rows(1, 3), "rows 1..3 of f32");
  EXPECT_DEATH((void)t.as<bf16>(), "tensor is f32");
}

TEST(Buffer, IsAlignedAndZero) {
  const Buffer b(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % 64, 0U);
  for (const std::byte x : b.span_of<std::byte>()) EXPECT_EQ(x, std::byte{0});
}

TEST(Scratch, BumpsScopesAndRefusesOverflow) {
  Scratch s(256);
  {
    ScratchScope scope(s);
    EXPECT_NE(s.take<float>(10), s.take<float>(10));
    EXPECT_EQ(s.mark(), 128U);
  }
  EXPECT_EQ(s.mark(), 0U);
  EXPECT_EQ(s.bytes_max_used(), 128U);
  EXPECT_DEATH((void)s.take<float>(100), "scratch of 256 bytes");
}

Result<int> half(int x) {
  if (x % 2 != 0) return Error{ErrorCode::kInvalidArgument, "odd", "x"};
  return x / 2;
}
Result<int> quarter(int x) {
  const int h = TRY(half(x));
  return TRY(half(h));
}
Result<void> divisible_by_four(int x) {
  (void)TRY(quarter(x));
  return {};
}

TEST(Result, TryPassesValuesAndErrors) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().text, "odd");
  EXPECT_EQ(quarter(6).error().param, "x");
  EXPECT_TRUE(divisible_by_four(4).ok());
  EXPECT_FALSE(divisible_by_four(2).ok());
  EXPECT_DEATH((void)quarter(3).value(), "odd");
}

TEST(Clock, ManualClockMovesOnlyWhenTold) {
  ManualClock clock;
  const TimePoint t0 = clock.now();
  clock.advance(std::chrono::milliseconds(5));
  EXPECT_EQ(clock.now() - t0, std::chrono::milliseconds(5));
}

}  // namespace
}  // namespace tandem
