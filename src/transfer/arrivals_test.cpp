// SPDX-License-Identifier: Apache-2.0
#include "transfer/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/rng.h"
#include "transfer/digest.h"

namespace tandem::transfer {
namespace {

constexpr HandoffKey kA{.handoff = {7}, .epoch = 1};
constexpr HandoffKey kB{.handoff = {7}, .epoch = 2};

TEST(Arrivals, CountsPartsAndNotMessages) {
  Arrivals arrivals;
  std::vector<uint32_t> fresh;
  arrivals.expect(kA, 4, fresh);
  EXPECT_FALSE(arrivals.complete(kA));
  EXPECT_TRUE(arrivals.add({kA, 0, 2}, fresh));
  EXPECT_TRUE(arrivals.add({kA, 0, 2}, fresh));  // the same message twice
  EXPECT_TRUE(arrivals.add({kA, 1, 2}, fresh));  // overlaps
  EXPECT_EQ(fresh, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(arrivals.arrived(kA), 3U);
  EXPECT_EQ(arrivals.duplicates(), 3);
  EXPECT_FALSE(arrivals.complete(kA));
  arrivals.add({kA, 3, 1}, fresh);
  EXPECT_TRUE(arrivals.complete(kA));
}

TEST(Arrivals, EarlyPartsWaitForTheirHandoffAndStaleOnesNeverCount) {
  Arrivals arrivals;
  std::vector<uint32_t> fresh;
  EXPECT_FALSE(arrivals.add({kB, 0, 1}, fresh));  // before expect
  EXPECT_TRUE(fresh.empty());
  arrivals.expect(kA, 2, fresh);
  EXPECT_TRUE(fresh.empty());
  arrivals.forget(kA);
  EXPECT_FALSE(arrivals.add({kA, 0, 2}, fresh));  // stale: its epoch is over
  arrivals.expect(kB, 2, fresh);
  EXPECT_EQ(fresh, (std::vector<uint32_t>{0}));
  EXPECT_FALSE(arrivals.complete(kB));
  EXPECT_FALSE(arrivals.complete(kA));
}

TEST(Arrivals, APartOutsideTheHandoffCountsForNothing) {
  Arrivals arrivals;
  std::vector<uint32_t> fresh;
  arrivals.expect(kA, 4, fresh);
  for (const Parts bad : {Parts{kA, 4, 1}, Parts{kA, 0, 5}, Parts{kA, 3, 2},
                          Parts{kA, UINT32_MAX, 2}, Parts{kA, 2, UINT32_MAX}}) {
    arrivals.add(bad, fresh);
  }
  EXPECT_TRUE(fresh.empty());
  EXPECT_EQ(arrivals.refused(), 5);
}

TEST(Arrivals, TheEarlyBufferIsBounded) {
  Arrivals arrivals(3);
  std::vector<uint32_t> fresh;
  for (uint32_t i = 0; i < 10; ++i) arrivals.add({kA, i, 1}, fresh);
  arrivals.expect(kA, 10, fresh);
  EXPECT_EQ(fresh, (std::vector<uint32_t>{7, 8, 9}));
}

// Any order, overlap and repetition of messages gives the set that they cover.
TEST(Arrivals, RandomMessagesGiveTheUnion) {
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    const auto parts = static_cast<uint32_t>(rng.between(0, 60));
    Arrivals arrivals;
    std::vector<uint32_t> fresh;
    std::set<uint32_t> model;
    const int64_t early = rng.between(0, 10);
    for (int i = 0; i < 40; ++i) {
      if (i == early) arrivals.expect(kA, parts, fresh);
      const Parts message{kA, static_cast<uint32_t>(rng.below(70)),
                          static_cast<uint32_t>(rng.below(6))};
      arrivals.add(message, fresh);
      if (message.begin + message.count <= parts) {
        for (uint32_t k = 0; k < message.count; ++k) model.insert(message.begin + k);
      }
    }
    std::sort(fresh.begin(), fresh.end());
    EXPECT_EQ(fresh, std::vector<uint32_t>(model.begin(), model.end()));
    EXPECT_EQ(arrivals.complete(kA), model.size() == parts);
  }
}

TEST(Digest, EveryBitAndEveryPlaceCounts) {
  std::vector<std::byte> page(4096);
  Rng rng(2);
  for (std::byte& b : page) b = static_cast<std::byte>(rng.next_u32());
  const Digest truth = digest_of(page);
  EXPECT_EQ(digest_of(page), truth);
  for (int i = 0; i < 200; ++i) {
    const size_t at = rng.below(page.size());
    const auto mask = static_cast<std::byte>(1U << rng.below(8));
    page[at] ^= mask;
    EXPECT_NE(digest_of(page), truth);
    page[at] ^= mask;
  }
  const std::array<Digest, 2> order{truth, digest_of(std::span(page).first(64))};
  const std::array<Digest, 2> swapped{order[1], order[0]};
  EXPECT_NE(digest_of(order), digest_of(swapped));
}

// The known answer of the xxHash specification's reference code for an empty input, seed 0.
TEST(Digest, KnownAnswer) {
  const Digest empty = digest_of(std::span<const std::byte>());
  EXPECT_EQ(empty.high, 0x99aa06d3014798d8ULL);
  EXPECT_EQ(empty.low, 0x6001c324468d497fULL);
}

}  // namespace
}  // namespace tandem::transfer
