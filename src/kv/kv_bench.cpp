// SPDX-License-Identifier: Apache-2.0
// What page ownership and the prefix cache cost on the host, per page. Pages of 64 tokens.
#include <unordered_map>

#include "bench/report.h"
#include "core/rng.h"
#include "kv/prefix_cache.h"
#include "kv/sequence_pages.h"

namespace tandem::kv {
namespace {

constexpr int32_t kPageTokens = 64;
constexpr int32_t kPoolPages = 16'384;  // 1,048,576 tokens

std::vector<int32_t> random_tokens(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> out(count);
  for (int32_t& token : out) token = static_cast<int32_t>(rng.below(150'000));
  return out;
}

bench::Row ns_per(std::string name, std::string case_name, double pages,
                  const bench::Timing& timing) {
  return {.name = std::move(name),
          .case_name = std::move(case_name),
          .value = timing.median_s * 1e9 / pages,
          .unit = "ns/page",
          .min = timing.min_s * 1e9 / pages,
          .max = timing.max_s * 1e9 / pages,
          .repeats = timing.repeats};
}

void bench_allocate(bench::Report& report) {
  constexpr int32_t kBatch = 32;
  constexpr int kRounds = 1000;
  PagePool pool({.page_count = kPoolPages});
  std::vector<PageId> pages;
  const auto timing = bench::measure([&] {
    for (int round = 0; round < kRounds; ++round) {
      pages.clear();
      bench::keep(pool.allocate(kBatch, pages) ? &pool : nullptr);
      for (const PageId page : pages) pool.release(page);
    }
  });
  report.add(ns_per("kv/allocate", "32 free pages, and back", kBatch * kRounds, timing));
}

// Every allocation evicts, every release caches: a full cache under new prompts.
void bench_turnover(bench::Report& report, int32_t salts) {
  constexpr int32_t kPages = 32;
  PagePool pool({.page_count = kPoolPages, .group_floor_pages = 4});
  PrefixCache cache(pool, {.page_tokens = kPageTokens, .secret = 1});
  const auto tokens = random_tokens(size_t{kPoolPages} * kPageTokens * 2, 1);
  uint64_t next = 0;
  std::vector<PageHash> hashes;
  const auto run_prompt = [&] {
    const auto prompt = std::span(tokens).subspan(
        next % (kPoolPages * 2 / kPages) * kPages * kPageTokens, kPages * kPageTokens);
    const uint64_t salt = next++ % static_cast<uint64_t>(salts);
    hashes.clear();
    cache.hash_pages(prompt, salt, hashes);
    SequencePages pages(pool);
    pages.acquire_prefix(cache, prompt, salt, hashes);
    if (!pages.grow(kPages)) return;
    pages.insert_full(cache, prompt, salt, hashes, kPages);
  };
  for (int i = 0; i < kPoolPages / kPages; ++i) run_prompt();
  const auto timing = bench::measure([&] {
    for (int i = 0; i < 100; ++i) run_prompt();
  });
  report.add(ns_per("kv/new_prompt",
                    "hash, evict, insert, release; " + std::to_string(salts) + " salts",
                    100.0 * kPages, timing));
}

void bench_match(bench::Report& report) {
  constexpr int32_t kPages = 32;
  constexpr int32_t kPrompts = kPoolPages / kPages;
  PagePool pool({.page_count = kPoolPages});
  PrefixCache cache(pool, {.page_tokens = kPageTokens, .secret = 1});
  std::unordered_map<PageHash, PageId, PageHashHasher> peer;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<PageHash>> hashes(kPrompts);
  for (int32_t i = 0; i < kPrompts; ++i) {
    prompts.push_back(
        random_tokens(size_t{kPages} * kPageTokens + 1, static_cast<uint64_t>(i) + 10));
    cache.hash_pages(prompts.back(), 0, hashes[static_cast<size_t>(i)]);
    SequencePages pages(pool);
    if (!pages.grow(kPages)) return;
    pages.insert_full(cache, prompts.back(), 0, hashes[static_cast<size_t>(i)], kPages);
    for (size_t p = 0; p < kPages; ++p) {
      peer.emplace(hashes[static_cast<size_t>(i)][p], pages.pages()[p]);
    }
  }
  std::vector<PageHash> scratch;
  const auto hash_timing = bench::measure([&] {
    for (const auto& prompt : prompts) {
      scratch.clear();
      cache.hash_pages(prompt, 0, scratch);
      bench::keep(scratch.data());
    }
  });
  report.add(ns_per("kv/hash", "2,048 tokens", double{kPages} * kPrompts, hash_timing));
  std::vector<PageId> found;
  const auto match_timing = bench::measure([&] {
    for (size_t i = 0; i < prompts.size(); ++i) {
      found.clear();
      bench::keep(cache.match_pages(prompts[i], 0, hashes[i], found) == kPages ? &found : nullptr);
    }
  });
  const auto peer_timing = bench::measure([&] {
    for (const auto& chain : hashes) {
      found.clear();
      for (const PageHash& hash : chain) found.push_back(peer.find(hash)->second);
      bench::keep(found.data());
    }
  });
  bench::Row row =
      ns_per("kv/match", "2,048 tokens, all hit", double{kPages} * kPrompts, match_timing);
  row.peer = "std::unordered_map, tokens not compared";
  row.peer_value = peer_timing.median_s * 1e9 / (double{kPages} * kPrompts);
  report.add(row);
}

}  // namespace
}  // namespace tandem::kv

int main(int argc, char** argv) {
  tandem::bench::Report report(argc, argv, "Page pool and prefix cache");
  tandem::kv::bench_allocate(report);
  tandem::kv::bench_match(report);
  tandem::kv::bench_turnover(report, 1);
  tandem::kv::bench_turnover(report, 64);
  report.note("16,384 pages of 64 tokens; one thread");
  return report.finish();
}
