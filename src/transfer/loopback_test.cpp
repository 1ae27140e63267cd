// SPDX-License-Identifier: Apache-2.0
#include "transfer/loopback.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "core/rng.h"
#include "core/tensor.h"
#include "transfer/faulty.h"

namespace tandem::transfer {
namespace {

constexpr HandoffKey kKey{.handoff = {1}, .epoch = 1};
const TimePoint kT0{};

// A sender and a receiver with memory of their own; the receiver's is all 0xee.
struct Pair {
  explicit Pair(LoopbackLimits limits = {}, size_t bytes = 4096)
      : fabric(limits),
        sender(fabric.make_endpoint()),
        receiver(fabric.make_endpoint()),
        from(bytes),
        to(bytes) {
    Rng rng(3);
    for (std::byte& b : from.span_of<std::byte>()) b = static_cast<std::byte>(rng.next_u32());
    for (std::byte& b : to.span_of<std::byte>()) b = std::byte{0xee};
    src = sender->register_memory(from.span_of<std::byte>()).value();
    dst = receiver->register_memory(to.span_of<std::byte>()).value();
  }
  [[nodiscard]] Request paged(uint64_t length, std::vector<int32_t> s,
                              std::vector<int32_t> d) const {
    return {.op = PagedWrite{.length = length,
                             .src = src,
                             .src_stride = 64,
                             .src_indices = std::move(s),
                             .dst = dst,
                             .dst_stride = 64,
                             .dst_indices = std::move(d)},
            .owner = kKey,
            .parts = Parts{kKey, 0, 1}};
  }
  std::vector<Completion> completions() const {
    std::vector<Completion> out;
    sender->take_completions(out);
    return out;
  }
  std::vector<Parts> arrivals() const {
    std::vector<Parts> out;
    receiver->take_arrivals(out);
    return out;
  }

  LoopbackFabric fabric;
  std::unique_ptr<Transport> sender, receiver;
  Buffer from, to;
  MemoryHandle src, dst;
};

// Random shapes: each byte that the request names is the source's, no other is touched.
TEST(Loopback, PagedWritesTouchExactlyTheirBytes) {
  Rng rng(4);
  for (int round = 0; round < 300; ++round) {
    Pair p;
    PagedWrite w{.length = rng.below(65), .src = p.src, .dst = p.dst};
    w.src_stride = rng.below(100);
    w.dst_stride = std::max<uint64_t>(w.length, rng.below(100));
    w.src_base = rng.below(64);
    w.dst_base = rng.below(64);
    std::map<uint64_t, std::byte> expected;
    const size_t pages = rng.below(12);
    for (size_t i = 0; i < pages; ++i) {
      w.src_indices.push_back(static_cast<int32_t>(rng.below(36)));
      w.dst_indices.push_back(static_cast<int32_t>(i * 3));
      for (uint64_t k = 0; k < w.length; ++k) {
        const uint64_t s = w.src_base + static_cast<uint64_t>(w.src_indices[i]) * w.src_stride + k;
        expected[w.dst_base + i * 3 * w.dst_stride + k] = p.from.data()[s];
      }
    }
    const auto id = p.sender->submit({.op = w, .owner = kKey, .parts = Parts{kKey, 2, 3}});
    ASSERT_TRUE(id.ok() && id.value().has_value());
    EXPECT_TRUE(p.completions().empty());  // nothing moves before a step
    p.sender->step(kT0);
    const auto done = p.completions();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].outcome, Outcome::kDone);
    EXPECT_EQ(p.arrivals(), (std::vector<Parts>{{kKey, 2, 3}}));
    for (uint64_t i = 0; i < p.to.bytes(); ++i) {
      const auto it = expected.find(i);
      ASSERT_EQ(p.to.data()[i], it == expected.end() ? std::byte{0xee} : it->second) << i;
    }
  }
}

TEST(Loopback, RefusesWhatLeavesItsRegion) {
  Pair p;
  const auto bad = [&](Request r) { return !p.sender->submit(std::move(r)).ok(); };
  EXPECT_FALSE(bad(p.paged(64, {63}, {63})));
  EXPECT_TRUE(bad(p.paged(64, {64}, {0})));
  EXPECT_TRUE(bad(p.paged(64, {0}, {64})));
  EXPECT_TRUE(bad(p.paged(65, {0}, {63})));
  EXPECT_TRUE(bad(p.paged(64, {-1}, {0})));
  EXPECT_TRUE(bad(p.paged(64, {0}, {-1})));
  EXPECT_TRUE(bad(p.paged(64, {0, 1}, {0})));
  EXPECT_TRUE(bad(p.paged(4097, {}, {})));
  EXPECT_TRUE(bad(p.paged(UINT64_MAX, {0}, {0})));
  Request wraps = p.paged(64, {3}, {0});
  std::get<PagedWrite>(wraps.op).src_stride = UINT64_MAX / 2;
  EXPECT_TRUE(bad(wraps));
  Request base = p.paged(64, {0}, {0});
  std::get<PagedWrite>(base.op).dst_base = UINT64_MAX - 10;
  EXPECT_TRUE(bad(base));
  Request foreign = p.paged(64, {0}, {0});
  std::swap(std::get<PagedWrite>(foreign.op).src, std::get<PagedWrite>(foreign.op).dst);
  EXPECT_TRUE(bad(foreign));
  EXPECT_TRUE(
      bad({.op = SingleWrite{.length = 10, .src = p.src, .src_offset = 4090, .dst = p.dst}}));
  EXPECT_TRUE(bad({.op = Immediate{p.receiver->id()}, .parts = Parts{kKey, UINT32_MAX, 1}}));
}

TEST(Loopback, AFullQueueIsAnAnswerAndNotAnError) {
  Pair p({.open_requests_max = 2});
  EXPECT_TRUE(p.sender->submit(p.paged(64, {0}, {0})).value());
  EXPECT_TRUE(p.sender->submit(p.paged(64, {1}, {1})).value());
  EXPECT_FALSE(p.sender->submit(p.paged(64, {2}, {2})).value());
  p.sender->step(kT0);
  EXPECT_FALSE(p.sender->submit(p.paged(64, {2}, {2})).value());  // done, but not polled
  EXPECT_EQ(p.completions().size(), 2U);
  EXPECT_TRUE(p.sender->submit(p.paged(64, {2}, {2})).value());
}

TEST(Loopback, AFullInboxHoldsTheSenderBack) {
  Pair p({.inbox_max = 1});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(p.sender->submit(p.paged(64, {i}, {i})).value());
  for (int i = 0; i < 3; ++i) {
    p.sender->step(kT0);
    p.sender->step(kT0);
    EXPECT_EQ(p.completions().size(), 1U);
    EXPECT_EQ(p.arrivals().size(), 1U);
  }
}

TEST(Loopback, AStepMovesABoundedNumberOfBytes) {
  Pair p({.bytes_per_step = 128});
  ASSERT_TRUE(p.sender->submit(p.paged(64, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4})).value());
  for (int step = 0; step < 2; ++step) {
    p.sender->step(kT0);
    EXPECT_TRUE(p.completions().empty());
    EXPECT_TRUE(p.arrivals().empty());
    EXPECT_NE(p.to.data()[static_cast<size_t>(step) * 128], std::byte{0xee});
    EXPECT_EQ(p.to.data()[256], std::byte{0xee});
  }
  p.sender->step(kT0);
  EXPECT_EQ(p.arrivals().size(), 1U);
}

TEST(Loopback, CancelLeavesTheRestAloneAndReportsIt) {
  Pair p({.bytes_per_step = 64});
  ASSERT_TRUE(p.sender->submit(p.paged(64, {0, 1, 2}, {0, 1, 2})).value());
  Request other = p.paged(64, {5}, {5});
  other.owner = {.handoff = {2}, .epoch = 1};
  ASSERT_TRUE(p.sender->submit(other).value());
  p.sender->step(kT0);
  p.sender->cancel(kKey);
  p.sender->step(kT0);
  const auto done = p.completions();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].outcome, Outcome::kCancelled);
  EXPECT_EQ(done[1].outcome, Outcome::kDone);
  EXPECT_EQ(p.to.data()[64], std::byte{0xee});  // the second page never moved
  EXPECT_EQ(p.arrivals().size(), 1U);           // only the other's
}

TEST(Loopback, DeadlinesEndRequestsWhereverTheyWait) {
  Pair p({.bytes_per_step = 64});
  Request late = p.paged(64, {0, 1, 2, 3}, {0, 1, 2, 3});
  Request behind = p.paged(64, {4}, {4});
  behind.deadline = kT0 + std::chrono::seconds(1);
  ASSERT_TRUE(p.sender->submit(late).value());
  ASSERT_TRUE(p.sender->submit(behind).value());
  p.sender->step(kT0);
  EXPECT_TRUE(p.completions().empty());
  p.sender->step(kT0 + std::chrono::seconds(1));
  const auto done = p.completions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].outcome, Outcome::kExpired);
}

TEST(Loopback, GoneMemoryAndGonePeersFailTheWrite) {
  Pair p;
  ASSERT_TRUE(p.sender->submit(p.paged(64, {0}, {0})).value());
  EXPECT_TRUE(p.receiver->deregister_memory(p.dst));
  p.sender->step(kT0);
  EXPECT_EQ(p.completions()[0].outcome, Outcome::kFailed);
  const MemoryHandle again = p.receiver->register_memory(p.to.span_of<std::byte>()).value();
  EXPECT_NE(again.key, p.dst.key);  // the old handle stays refused
  ASSERT_TRUE(p.sender->submit(p.paged(64, {0}, {0})).value());
  p.sender->step(kT0);
  EXPECT_EQ(p.completions()[0].outcome, Outcome::kFailed);
  EXPECT_EQ(p.to.data()[0], std::byte{0xee});
  p.receiver.reset();
  ASSERT_TRUE(p.sender->submit(p.paged(64, {0}, {0})).value());
  p.sender->step(kT0);
  EXPECT_EQ(p.completions()[0].outcome, Outcome::kFailed);
}

// A handle that claims more than was registered is refused by the memory's owner, not trusted.
TEST(Loopback, AForgedSizeIsRefused) {
  Pair p;
  Request r = p.paged(64, {0}, {100});
  std::get<PagedWrite>(r.op).dst.bytes = 1 << 20;
  ASSERT_TRUE(p.sender->submit(r).value());
  p.sender->step(kT0);
  EXPECT_EQ(p.completions()[0].outcome, Outcome::kFailed);
}

TEST(Loopback, TwoThreadsSeeWholePages) {
  Pair p({.inbox_max = 8, .bytes_per_step = 256});
  constexpr int kRounds = 4000;
  std::atomic<int> released{64};  // how many slots the receiver has read, plus the slots there are
  std::thread sending([&] {
    std::vector<Completion> done;
    for (int i = 0; i < kRounds;) {
      if (i < released.load(std::memory_order_acquire)) {
        Request r = p.paged(64, {i % 64}, {i % 64});
        r.parts = Parts{kKey, static_cast<uint32_t>(i), 1};
        if (p.sender->submit(std::move(r)).value()) ++i;
      }
      p.sender->step(kT0);
      p.sender->take_completions(done);
    }
    while (done.size() < kRounds) {
      p.sender->step(kT0);
      p.sender->take_completions(done);
    }
  });
  uint32_t next = 0;
  while (next < kRounds) {
    for (const Parts& parts : p.arrivals()) {
      ASSERT_EQ(parts.begin, next);
      const size_t at = next % 64 * 64;
      ASSERT_EQ(std::memcmp(p.to.data() + at, p.from.data() + at, 64), 0);
      std::memset(p.to.data() + at, 0, 64);
      ++next;
      released.fetch_add(1, std::memory_order_release);
    }
  }
  sending.join();
}

// Whatever the faults: one Completion for each accepted request, and with none left, all arrives.
TEST(Faulty, EachRequestEndsOnceAndEachFaultTakesPlace) {
  Pair p;
  FaultPlan plan;
  for (size_t kind = 0; kind < kFaultKinds; ++kind) plan.with(static_cast<Fault>(kind), 0.15F);
  auto* faulty = new FaultyTransport(std::move(p.sender), plan, 5);
  p.sender.reset(faulty);
  p.src = faulty->register_memory(p.from.span_of<std::byte>()).value();
  Rng rng(6);
  std::map<uint64_t, int> ends;
  size_t accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    Request r = p.paged(64, {static_cast<int32_t>(rng.below(64))}, {0});
    r.owner.handoff = {rng.below(20)};
    const auto id = p.sender->submit(r).value();
    accepted += id.has_value();
    if (rng.below(50) == 0) p.sender->cancel({.handoff = {rng.below(20)}, .epoch = 1});
    p.sender->step(kT0);
    for (const Completion& done : p.completions()) ++ends[done.id.value];
    p.arrivals();
  }
  for (int i = 0; i < 100; ++i) {
    p.sender->step(kT0);
    for (const Completion& done : p.completions()) ++ends[done.id.value];
  }
  EXPECT_EQ(ends.size(), accepted);
  for (const auto& [id, count] : ends) EXPECT_EQ(count, 1) << id;
  for (size_t kind = 0; kind < kFaultKinds; ++kind) {
    EXPECT_GT(faulty->injected(static_cast<Fault>(kind)), 100) << kind;
  }
}

TEST(Faulty, ACorruptedWriteDiffersInOneBit) {
  Pair p;
  auto* faulty =
      new FaultyTransport(std::move(p.sender), FaultPlan{}.with(Fault::kCorrupt, 1.0F), 7);
  p.sender.reset(faulty);
  p.src = faulty->register_memory(p.from.span_of<std::byte>()).value();
  ASSERT_TRUE(p.sender->submit(p.paged(64, {3, 9}, {3, 9})).value());
  for (int i = 0; i < 5; ++i) p.sender->step(kT0);
  EXPECT_EQ(p.arrivals().size(), 1U);
  int bits = 0;
  for (const size_t page : {3, 9}) {
    for (size_t i = page * 64; i < page * 64 + 64; ++i) {
      bits += __builtin_popcount(std::to_integer<unsigned>(p.to.data()[i] ^ p.from.data()[i]));
    }
  }
  EXPECT_EQ(bits, 1);
}

}  // namespace
}  // namespace tandem::transfer
