// SPDX-License-Identifier: Apache-2.0
#include "model/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "core/rng.h"
#include "model/sampler_row.h"

namespace tandem::model {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  std::vector<float> logits;
  int32_t vocab_sampled = 0;
  int32_t position = 0;
  std::vector<int32_t> prompt, output, stop_ids;
  SamplingParams params;

  [[nodiscard]] SampleInput input() const {
    return {.logits = logits,
            .vocab_sampled = vocab_sampled,
            .position = position,
            .prompt = prompt,
            .output = output,
            .stop_ids = stop_ids};
  }
};

// --- The reference: sorts everything, in double, by the words of sampler.h.

// The row after bias, penalties and masks, in f32 like the sampler's.
std::vector<float> reference_row(const Case& c) {
  std::vector<float> row = c.logits;
  const SamplingParams& p = c.params;
  for (const auto& [id, bias] : p.logit_bias) row[static_cast<size_t>(id)] += bias;
  std::set<int32_t> seen(c.prompt.begin(), c.prompt.end());
  std::map<int32_t, int32_t> counts;
  for (const int32_t t : c.output) {
    seen.insert(t);
    ++counts[t];
  }
  for (const int32_t t : seen) {
    float& z = row[static_cast<size_t>(t)];
    if (p.repetition_penalty != 1.0F) {
      z = z > 0 ? z / p.repetition_penalty : z * p.repetition_penalty;
    }
  }
  for (const auto& [t, n] : counts) {
    row[static_cast<size_t>(t)] -= p.frequency_penalty * static_cast<float>(n);
    row[static_cast<size_t>(t)] -= p.presence_penalty;
  }
  if (c.output.size() < static_cast<size_t>(p.min_tokens)) {
    for (const int32_t t : c.stop_ids) row[static_cast<size_t>(t)] = -kInf;
  }
  row.resize(static_cast<size_t>(c.vocab_sampled));
  return row;
}

struct Kept {
  int32_t id;
  double weight;
};

// What is left to draw from, likeliest first. `margin` is how near (as a share of the whole) any
// decision of top_p or min_p came to falling the other way.
std::vector<Kept> reference_kept(const Case& c, double& margin) {
  const std::vector<float> row = reference_row(c);
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
  });
  const SamplingParams& p = c.params;
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < order.size()) {
    order.resize(static_cast<size_t>(p.top_k));
  }
  const double max = row[static_cast<size_t>(order[0])];
  std::vector<Kept> kept;
  double total = 0;
  for (const int32_t id : order) {
    const double z = row[static_cast<size_t>(id)];
    const double weight = std::exp((z - max) / static_cast<double>(p.temperature));
    kept.push_back({id, weight});
    total += weight;
  }
  margin = 1.0;
  if (p.top_p < 1.0F) {
    double sum = 0;
    size_t count = 0;
    while (count < kept.size() && sum < p.top_p * total) {
      sum += kept[count++].weight;
      margin = std::min(margin, std::abs(sum / total - p.top_p));
    }
    kept.resize(count);
  }
  if (p.min_p > 0.0F) {
    for (const Kept& k : kept) {
      if (k.weight == 1.0) continue;  // the likeliest, exactly 1 in f32 too
      margin = std::min(margin, std::abs(k.weight / p.min_p - 1.0));
    }
    std::erase_if(kept, [&](const Kept& k) { return k.weight < p.min_p; });
  }
  return kept;
}

double reference_uniform(const Case& c) {
  const auto words = philox4x32(
      {static_cast<uint32_t>(c.position), c.params.choice_idx, 0, 0},
      {static_cast<uint32_t>(c.params.seed), static_cast<uint32_t>(c.params.seed >> 32)});
  const uint64_t bits = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) / 4503599627370496.0;
}

// The token, or nothing where f32 weights may rightly decide otherwise.
std::optional<int32_t> reference_token(const Case& c) {
  if (c.params.temperature == 0.0F) {
    const std::vector<float> row = reference_row(c);
    return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
  }
  // Weights in f32 are off by a few 1e-7 of themselves, more where (z - max) / T is large: rounding
  // that quotient to f32 moves the exponent by up to 87 * 2^-24 = 5e-6.
  constexpr double kTolerance = 1e-5;
  double margin = 0;
  std::vector<Kept> kept = reference_kept(c, margin);
  std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.id < b.id; });
  double total = 0;
  for (const Kept& k : kept) total += k.weight;
  const double point = reference_uniform(c) * total;
  double sum = 0;
  std::optional<int32_t> token;
  for (const Kept& k : kept) {
    sum += k.weight;
    margin = std::min(margin, std::abs(sum - point) / total);
    if (!token && sum > point) token = k.id;
  }
  if (margin < kTolerance) return std::nullopt;
  return token;
}

// --- Cases

std::vector<float> normal_logits(Rng& rng, int32_t vocab, float spread) {
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& z : logits) z = spread * rng.normal();
  return logits;
}

std::vector<int32_t> random_ids(Rng& rng, int32_t vocab, uint64_t count_max) {
  std::vector<int32_t> ids(rng.below(count_max + 1));
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
  return ids;
}

template <typename T>
T pick(Rng& rng, std::initializer_list<T> values) {
  return *(values.begin() + rng.below(values.size()));
}

Case random_case(Rng& rng) {
  Case c;
  const auto vocab = static_cast<int32_t>(rng.between(1, pick<int64_t>(rng, {5, 300, 3000})));
  c.logits = normal_logits(rng, vocab, pick(rng, {0.1F, 2.0F, 10.0F}));
  if (rng.below(3) == 0) {  // many equal logits
    for (float& z : c.logits) z = std::round(z);
  }
  c.vocab_sampled = rng.below(2) == 0 ? vocab : static_cast<int32_t>(rng.between(1, vocab));
  c.position = static_cast<int32_t>(rng.below(100000));
  c.prompt = random_ids(rng, vocab, 20);
  c.output = random_ids(rng, vocab, 20);
  SamplingParams& p = c.params;
  p.temperature = pick(rng, {0.0F, 0.05F, 0.6F, 1.0F, 1.7F, 100.0F});
  p.top_k = pick(rng, {0, 0, 1, 2, 20, 150, 1 << 20});
  p.top_p = pick(rng, {1.0F, 1.0F, 1e-6F, 0.3F, 0.8F, 0.95F, 0.9999F});
  p.min_p = pick(rng, {0.0F, 0.0F, 0.05F, 1e-5F, 1.0F});
  p.repetition_penalty = pick(rng, {1.0F, 1.0F, 1.05F, 0.5F});
  p.presence_penalty = pick(rng, {0.0F, 0.0F, 1.5F, -2.0F});
  p.frequency_penalty = pick(rng, {0.0F, 0.0F, 0.3F, -0.3F});
  std::set<int32_t> biased;
  for (const int32_t id : random_ids(rng, vocab, 4)) biased.insert(id);
  if (rng.below(3) == 0) {
    for (const int32_t id : biased)
      p.logit_bias.emplace_back(id, pick(rng, {-100.0F, 3.0F, 100.0F}));
  }
  p.seed = rng.next_u64();
  p.choice_idx = static_cast<uint32_t>(rng.below(4));
  p.min_tokens = pick(rng, {0, 5, 30});
  if (vocab > 4) c.stop_ids = {static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)))};
  return c;
}

int32_t draw(const Case& c, SamplerScratch& scratch) {
  const Result<SampledToken> out = sample(c.input(), c.params, scratch);
  CHECK(out.ok(), "{}", out.error().text);
  return out.value().token;
}

// --- Tests

TEST(Sampler, EqualsTheSortingReferenceInDouble) {
  Rng rng(20260101);
  const SamplerScratchPtr scratch = make_sampler_scratch(3000);
  int compared = 0, near = 0;
  for (int i = 0; i < 6000; ++i) {
    const Case c = random_case(rng);
    const std::vector<float> row = reference_row(c);
    if (*std::max_element(row.begin(), row.end()) == -kInf) {
      EXPECT_FALSE(sample(c.input(), c.params, *scratch).ok());
      continue;
    }
    const auto expected = reference_token(c);
    if (!expected) {
      ++near;
      continue;
    }
    ++compared;
    const SamplingParams& p = c.params;
    ASSERT_EQ(draw(c, *scratch), *expected)
        << "case " << i << ": V " << c.logits.size() << " sampled " << c.vocab_sampled << " T "
        << p.temperature << " k " << p.top_k << " p " << p.top_p << " min_p " << p.min_p;
  }
  EXPECT_GT(compared, 5000);
  EXPECT_LT(near, 600);
}

TEST(Sampler, IsAPureFunctionWhateverTheScratchDidBefore) {
  Rng rng(7);
  const SamplerScratchPtr used = make_sampler_scratch(3000);
  for (int i = 0; i < 300; ++i) {
    const Case c = random_case(rng);
    const SamplerScratchPtr fresh = make_sampler_scratch(static_cast<int32_t>(c.logits.size()));
    const Result<SampledToken> first = sample(c.input(), c.params, *fresh);
    const Result<SampledToken> later = sample(c.input(), c.params, *used);
    const Result<SampledToken> again = sample(c.input(), c.params, *used);
    ASSERT_EQ(first.ok(), later.ok());
    if (!first.ok()) continue;
    ASSERT_EQ(first->token, later->token);
    ASSERT_EQ(first->token, again->token);
  }
}

TEST(Sampler, SwitchedOffAndUnlimitedAreTheSame) {
  Rng rng(11);
  const SamplerScratchPtr scratch = make_sampler_scratch(1000);
  Case c{.logits = normal_logits(rng, 1000, 3.0F), .vocab_sampled = 1000};
  for (c.position = 0; c.position < 200; ++c.position) {
    c.params = {.temperature = 0.9F, .seed = 5};
    const int32_t plain = draw(c, *scratch);
    c.params.top_k = 1000;
    EXPECT_EQ(draw(c, *scratch), plain);
    c.params.top_k = 999;  // the least likely id is never drawn here
    EXPECT_EQ(draw(c, *scratch), plain);
    c.params.top_k = 0;
    c.params.min_p = 1e-30F;
    EXPECT_EQ(draw(c, *scratch), plain);
  }
}

// Draws of 40,000 seeds against the probabilities. The bound is the 0.9999 quantile of chi-square
// (Wilson-Hilferty); seeds are fixed, so the test can't fail by chance once it has passed.
void expect_chi_square(const Case& base) {
  double margin = 0;
  const std::vector<Kept> kept = reference_kept(base, margin);
  ASSERT_GT(margin, 1e-6);
  double total = 0;
  for (const Kept& k : kept) total += k.weight;
  constexpr int kDraws = 40000;
  std::map<int32_t, int> counts;
  const SamplerScratchPtr scratch = make_sampler_scratch(static_cast<int32_t>(base.logits.size()));
  Case c = base;
  for (int i = 0; i < kDraws; ++i) {
    c.position = i;
    ++counts[draw(c, *scratch)];
  }
  double chi2 = 0, rest_expected = 0;
  int cells = 0, rest_seen = 0, seen = 0;
  for (const Kept& k : kept) {
    const double expected = kDraws * k.weight / total;
    const int count = counts[k.id];
    seen += count;
    if (expected < 10) {
      rest_expected += expected;
      rest_seen += count;
      continue;
    }
    chi2 += (count - expected) * (count - expected) / expected;
    ++cells;
  }
  if (rest_expected > 10) {
    chi2 += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    ++cells;
  }
  EXPECT_EQ(seen, kDraws) << "a token outside the kept set was drawn";
  const double freedom = std::max(1, cells - 1);
  const double cube = 1 - 2 / (9 * freedom) + 3.719 * std::sqrt(2 / (9 * freedom));
  EXPECT_LT(chi2, freedom * cube * cube * cube) << cells << " cells";
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  Rng rng(3);
  Case c{.logits = normal_logits(rng, 500, 2.0F), .vocab_sampled = 490};
  c.params.seed = 99;
  c.params.temperature = 1.0F;
  expect_chi_square(c);
  c.params.temperature = 0.7F;
  c.params.top_k = 20;
  expect_chi_square(c);
  c.params.top_p = 0.8F;
  expect_chi_square(c);
  c.params.top_k = 0;
  c.params.top_p = 0.95F;
  expect_chi_square(c);
  c.params.top_p = 1.0F;
  c.params.min_p = 0.02F;
  c.params.choice_idx = 3;
  expect_chi_square(c);
}

TEST(Sampler, ChoicesSeedsAndPositionsHaveTheirOwnRandomNumbers) {
  Case c{.logits = std::vector<float>(1000, 0.0F), .vocab_sampled = 1000};
  const SamplerScratchPtr scratch = make_sampler_scratch(1000);
  const auto line = [&](uint64_t seed, uint32_t choice, int32_t from) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 20; ++i) {
      c.params = {.seed = seed, .choice_idx = choice};
      c.position = from + i;
      tokens.push_back(draw(c, *scratch));
    }
    return tokens;
  };
  const std::vector<int32_t> base = line(1, 0, 50);
  EXPECT_EQ(line(1, 0, 50), base);
  EXPECT_NE(line(1, 1, 50), base);
  EXPECT_NE(line(2, 0, 50), base);
  EXPECT_NE(line(uint64_t{1} << 32 | 1, 0, 50), base);  // all 64 bits of the seed count
  const std::vector<int32_t> shifted = line(1, 0, 55);
  EXPECT_TRUE(std::equal(shifted.begin(), shifted.end() - 5, base.begin() + 5))
      << "a draw depends on its position alone";
}

TEST(Sampler, TiesGoToTheLowerId) {
  const SamplerScratchPtr scratch = make_sampler_scratch(400);
  Case c{.logits = std::vector<float>(400, 1.0F), .vocab_sampled = 400};
  c.logits[0] = -5.0F;
  c.params.temperature = 0.0F;
  EXPECT_EQ(draw(c, *scratch), 1);
  c.logits[7] = -0.0F;  // equal to 0
  c.logits.assign(400, -0.0F);
  c.logits[300] = 0.0F;
  EXPECT_EQ(draw(c, *scratch), 0);
  c.params = {.temperature = 1.0F, .top_k = 3, .logprobs = 2};
  for (c.position = 0; c.position < 50; ++c.position) {
    const SampledToken out = sample(c.input(), c.params, *scratch).value();
    EXPECT_LT(out.token, 3);
    ASSERT_EQ(out.top.size(), 2U);
    EXPECT_EQ(out.top[0].token, 0);
    EXPECT_EQ(out.top[1].token, 1);
  }
  c.params = {.temperature = 1.0F, .top_p = 0.0101F};  // 4.04 of 400 equal shares: five tokens
  std::set<int32_t> drawn;
  for (c.position = 0; c.position < 300; ++c.position) drawn.insert(draw(c, *scratch));
  EXPECT_EQ(drawn, (std::set<int32_t>{0, 1, 2, 3, 4}));
}

TEST(Sampler, ABadRowIsAnErrorOfThatRowOnly) {
  Rng rng(1);
  const SamplerScratchPtr scratch = make_sampler_scratch(300);
  const Case good{.logits = normal_logits(rng, 300, 1.0F), .vocab_sampled = 290};
  const int32_t token = draw(good, *scratch);
  for (const float bad : {kNan, -kNan, kInf}) {
    for (const size_t at : {0UL, 127UL, 128UL, 289UL, 299UL}) {  // also beyond vocab_sampled
      for (const float temperature : {0.0F, 1.0F}) {
        Case c = good;
        c.logits[at] = bad;
        c.params.temperature = temperature;
        c.params.repetition_penalty = 1.2F;
        c.prompt = {static_cast<int32_t>(at)};
        c.stop_ids = {static_cast<int32_t>(at)};  // a mask must not hide it
        c.params.min_tokens = 10;
        const Result<SampledToken> out = sample(c.input(), c.params, *scratch);
        ASSERT_FALSE(out.ok()) << bad << " at " << at;
        EXPECT_EQ(out.error().code, ErrorCode::kInternal);
        EXPECT_FALSE(score(c.logits, 290, 1, 2, *scratch).ok());
        EXPECT_EQ(draw(good, *scratch), token);
      }
    }
  }
}

TEST(Sampler, NothingLeftIsAnErrorAndNeverAToken) {
  const SamplerScratchPtr scratch = make_sampler_scratch(10);
  Case c{.logits = std::vector<float>(10, -kInf), .vocab_sampled = 10};
  EXPECT_EQ(sample(c.input(), c.params, *scratch).error().code, ErrorCode::kInternal);
  c.logits[9] = 1.0F;  // one token left
  EXPECT_EQ(draw(c, *scratch), 9);
  c.vocab_sampled = 9;  // beyond the real vocabulary
  EXPECT_FALSE(sample(c.input(), c.params, *scratch).ok());
  c.vocab_sampled = 10;
  c.stop_ids = {9};
  c.params.min_tokens = 1;  // the only one left is masked
  EXPECT_FALSE(sample(c.input(), c.params, *scratch).ok());
  c.output = {3};
  EXPECT_EQ(draw(c, *scratch), 9);
}

TEST(Sampler, ExtremeSettingsStayInside) {
  Rng rng(5);
  const SamplerScratchPtr scratch = make_sampler_scratch(2000);
  Case c{.logits = normal_logits(rng, 2000, 4.0F), .vocab_sampled = 1990};
  const auto best = static_cast<int32_t>(
      std::max_element(c.logits.begin(), c.logits.begin() + 1990) - c.logits.begin());
  for (const float top_p : {1.0F, 0.9F, 1e-6F}) {
    for (const int32_t top_k : {0, 5}) {
      c.params = {.temperature = 1e-38F, .top_k = top_k, .top_p = top_p};
      EXPECT_EQ(draw(c, *scratch), best);
      c.params.temperature = std::numeric_limits<float>::denorm_min();
      EXPECT_EQ(draw(c, *scratch), best);
    }
  }
  c.params = {.temperature = 1.0F, .top_p = std::numeric_limits<float>::denorm_min()};
  EXPECT_EQ(draw(c, *scratch), best);

  c.params = {.temperature = 1e38F};  // nearly uniform
  std::set<int32_t> drawn;
  for (c.position = 0; c.position < 2000; ++c.position) drawn.insert(draw(c, *scratch));
  EXPECT_GT(drawn.size(), 1100U);  // 63 % of 1990 expected
  EXPECT_LT(*drawn.rbegin(), 1990);

  c.params = {.temperature = 1.0F};
  for (int32_t id = 0; id < 2000; ++id) c.params.logit_bias.emplace_back(id, -100.0F);
  EXPECT_EQ(draw(c, *scratch), [&] {  // all alike: no change but f32 rounding of the sums
    Case plain = c;
    plain.params.logit_bias.clear();
    return draw(plain, *scratch);
  }());
  c.logits.assign(2000, std::numeric_limits<float>::max());
  c.params = {.temperature = 1.0F, .repetition_penalty = 0.01F, .frequency_penalty = -3e38F};
  c.prompt = {3};
  c.output = {4, 4};
  c.params.logit_bias = {{7, std::numeric_limits<float>::max()}};
  EXPECT_GE(draw(c, *scratch), 0);  // clamped, not infinite
  c.logits.assign(2000, std::numeric_limits<float>::lowest());
  c.params.logprobs = 5;
  const SampledToken out = sample(c.input(), c.params, *scratch).value();
  EXPECT_TRUE(std::isfinite(out.logprob));
}

TEST(Sampler, LogprobsAreOfTheUnchangedDistribution) {
  Rng rng(13);
  const SamplerScratchPtr scratch = make_sampler_scratch(700);
  for (int i = 0; i < 50; ++i) {
    Case c{.logits = normal_logits(rng, 700, 5.0F), .vocab_sampled = 650};
    double sum = 0;
    for (size_t id = 0; id < 650; ++id) sum += std::exp(static_cast<double>(c.logits[id]));
    const auto expected = [&](int32_t id) {
      return static_cast<double>(c.logits[static_cast<size_t>(id)]) - std::log(sum);
    };
    std::vector<int32_t> order(650);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return c.logits[static_cast<size_t>(a)] > c.logits[static_cast<size_t>(b)];
    });
    c.params = {.temperature = 0.3F, .top_k = 2, .seed = 4, .logprobs = 20};
    c.params.logit_bias = {{11, 50.0F}};
    c.params.repetition_penalty = 1.5F;
    c.prompt = {order[0]};
    const SampledToken out = sample(c.input(), c.params, *scratch).value();
    EXPECT_NEAR(out.logprob, expected(out.token), 2e-6);
    ASSERT_EQ(out.top.size(), 20U);
    for (size_t k = 0; k < 20; ++k) {
      EXPECT_EQ(out.top[k].token, order[k]);
      EXPECT_NEAR(out.top[k].logprob, expected(order[k]), 2e-6);
    }
    const SampledToken scored = score(c.logits, 650, 123, 3, *scratch).value();
    EXPECT_EQ(scored.token, 123);
    EXPECT_NEAR(scored.logprob, expected(123), 4e-6);
    ASSERT_EQ(scored.top.size(), 3U);
    EXPECT_EQ(scored.top[2].token, order[2]);
    EXPECT_TRUE(std::isfinite(score(c.logits, 650, 699, 0, *scratch).value().logprob));
  }
}

TEST(Sampler, LogprobsAreLeftOutUnlessAskedFor) {
  const SamplerScratchPtr scratch = make_sampler_scratch(4);
  Case c{.logits = {0, 1, 2, 3}, .vocab_sampled = 4};
  EXPECT_EQ(sample(c.input(), c.params, *scratch)->logprob, 0.0F);
  c.params.logprobs = 0;
  const SampledToken out = sample(c.input(), c.params, *scratch).value();
  EXPECT_LT(out.logprob, 0.0F);
  EXPECT_TRUE(out.top.empty());
  c.params.logprobs = 20;  // more than there are
  EXPECT_EQ(sample(c.input(), c.params, *scratch)->top.size(), 4U);
}

TEST(Sampler, IdsAndSettingsOutOfRangeAreBugsOfTheCaller) {
  const SamplerScratchPtr scratch = make_sampler_scratch(4);
  Case c{.logits = {0, 1, 2, 3}, .vocab_sampled = 4};
  const auto dies = [&] { (void)sample(c.input(), c.params, *scratch); };
  c.params.temperature = kNan;
  EXPECT_DEATH(dies(), "temperature");
  c.params = {.top_p = 0.0F};
  EXPECT_DEATH(dies(), "top_p");
  c.params = {};
  c.params.logit_bias = {{4, 1.0F}};
  EXPECT_DEATH(dies(), "id 4 of 4");
  c.params = {.presence_penalty = 1.0F};
  c.output = {-1};
  EXPECT_DEATH(dies(), "id -1 of 4");
  EXPECT_DEATH((void)score(c.logits, 4, 4, 0, *scratch), "id 4 of 4");
}

TEST(SamplerRow, ExponentialIsWithinTwoUlp) {
  EXPECT_EQ(exp_nonpositive(0.0F), 1.0F);
  EXPECT_EQ(exp_nonpositive(-0.0F), 1.0F);
  EXPECT_EQ(exp_nonpositive(-kInf), 0.0F);
  EXPECT_EQ(exp_nonpositive(-88.0F), 0.0F);
  double worst = 0;
  for (int i = 0; i <= 870000; ++i) {
    const float x = -static_cast<float>(i) * 1e-4F;
    const double exact = std::exp(static_cast<double>(x));
    const double ulp = std::nextafter(static_cast<float>(exact), 2.0F) - static_cast<float>(exact);
    worst = std::max(worst, std::abs(exp_nonpositive(x) - exact) / ulp);
  }
  EXPECT_LT(worst, 2.0);
}

TEST(SamplerRow, KeysOrderLikeFloats) {
  const std::vector<float> ascending{
      -kInf, std::numeric_limits<float>::lowest(), -1.0F, -1e-40F, 0.0F, 1e-40F,
      1.0F,  std::numeric_limits<float>::max(),    kInf};
  for (size_t i = 1; i < ascending.size(); ++i) {
    EXPECT_LT(key_of(ascending[i - 1]), key_of(ascending[i]));
    EXPECT_EQ(value_of(key_of(ascending[i])), ascending[i]);
  }
  EXPECT_EQ(key_of(-0.0F), key_of(0.0F));
}

}  // namespace
}  // namespace tandem::model
