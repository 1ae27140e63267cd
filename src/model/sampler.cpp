// SPDX-License-Identifier: Apache-2.0
#include "model/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "model/sampler_row.h"

namespace tandem::model {

struct SamplerScratch {
  explicit SamplerScratch(int32_t vocab)
      : adjusted(static_cast<size_t>(vocab)),
        weights(static_cast<size_t>(vocab)),
        uses(static_cast<size_t>(vocab), 0) {}

  std::vector<float> adjusted;  // [V] the row after bias, penalties and masks
  std::vector<float> weights;   // [V]
  std::vector<uint32_t> uses;   // [V] all zero between calls
  std::vector<int32_t> used_ids;
  RowSummary raw_summary, adjusted_summary;
  std::vector<double> block_sums;
  std::vector<int32_t> block_keys;
  std::vector<Candidate> candidates;
  Histogram histogram{};
};

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kInPrompt = 1U << 31U;  // in `uses`, above the count of uses in the output

using Row = std::span<const float>;

void check_params(const SampleInput& in, const SamplingParams& p, const SamplerScratch& scratch) {
  const size_t vocab = in.logits.size();
  CHECK(vocab >= 1 && vocab <= scratch.adjusted.size(), "{} logits, scratch for {}", vocab,
        scratch.adjusted.size());
  CHECK(in.vocab_sampled >= 1 && static_cast<size_t>(in.vocab_sampled) <= vocab, "{} of {}",
        in.vocab_sampled, vocab);
  CHECK(in.position >= 0, "{}", in.position);
  CHECK(std::isfinite(p.temperature) && p.temperature >= 0, "temperature {}", p.temperature);
  CHECK(p.top_k >= 0 && p.top_p > 0 && p.top_p <= 1 && p.min_p >= 0 && p.min_p <= 1,
        "top_k {} top_p {} min_p {}", p.top_k, p.top_p, p.min_p);
  CHECK(std::isfinite(p.repetition_penalty) && p.repetition_penalty > 0, "{}",
        p.repetition_penalty);
  CHECK(std::isfinite(p.presence_penalty) && std::isfinite(p.frequency_penalty), "{} {}",
        p.presence_penalty, p.frequency_penalty);
}

// NaN, infinities and masked entries pass unchanged; what was finite stays finite.
template <typename Change>
void change(float& logit, const Change& f) {
  if (!std::isfinite(logit)) return;
  constexpr float kMax = std::numeric_limits<float>::max();
  logit = std::clamp(f(logit), -kMax, kMax);
}

size_t checked_id(int32_t id, size_t vocab) {
  CHECK(id >= 0 && static_cast<size_t>(id) < vocab, "id {} of {}", id, vocab);
  return static_cast<size_t>(id);
}

void count_uses(const SampleInput& in, bool with_prompt, SamplerScratch& s) {
  s.used_ids.clear();
  const auto use = [&](int32_t token) -> uint32_t& {
    uint32_t& uses = s.uses[checked_id(token, in.logits.size())];
    if (uses == 0) s.used_ids.push_back(token);
    return uses;
  };
  for (const int32_t token : in.output) ++use(token);
  if (!with_prompt) return;
  for (const int32_t token : in.prompt) use(token) |= kInPrompt;
}

void apply_penalties(const SampleInput& in, const SamplingParams& p, SamplerScratch& s) {
  const bool repetition = p.repetition_penalty != 1.0F;
  if (!repetition && p.presence_penalty == 0.0F && p.frequency_penalty == 0.0F) return;
  count_uses(in, repetition, s);
  for (const int32_t id : s.used_ids) {
    const uint32_t outputs = s.uses[static_cast<size_t>(id)] & ~kInPrompt;
    float& logit = s.adjusted[static_cast<size_t>(id)];
    if (repetition) {
      change(logit,
             [&](float z) { return z > 0 ? z / p.repetition_penalty : z * p.repetition_penalty; });
    }
    if (outputs > 0) {
      change(logit, [&](float z) { return z - p.frequency_penalty * static_cast<float>(outputs); });
      change(logit, [&](float z) { return z - p.presence_penalty; });
    }
    s.uses[static_cast<size_t>(id)] = 0;
  }
}

[[nodiscard]] bool masks_stops(const SampleInput& in, const SamplingParams& p) {
  return !in.stop_ids.empty() && in.output.size() < static_cast<size_t>(std::max(p.min_tokens, 0));
}

// The row that is drawn from: the caller's own, or a changed copy of it in the scratch.
Row adjusted_row(const SampleInput& in, const SamplingParams& p, SamplerScratch& s) {
  const bool penalised =
      p.repetition_penalty != 1.0F || p.presence_penalty != 0.0F || p.frequency_penalty != 0.0F;
  if (p.logit_bias.empty() && !penalised && !masks_stops(in, p)) return in.logits;
  std::copy(in.logits.begin(), in.logits.end(), s.adjusted.begin());
  for (const auto& [id, bias] : p.logit_bias) {
    CHECK(std::isfinite(bias), "bias {}", bias);
    change(s.adjusted[checked_id(id, in.logits.size())],
           [bias = bias](float z) { return z + bias; });
  }
  apply_penalties(in, p, s);
  if (masks_stops(in, p)) {
    for (const int32_t id : in.stop_ids) s.adjusted[checked_id(id, in.logits.size())] = -kInfinity;
  }
  return Row(s.adjusted).first(in.logits.size());
}

// Of the ids that can be drawn; an error where the row, with the part beyond them, is not sound.
Result<void> summarise_raw(Row logits, int32_t vocab_sampled, RowSummary& summary) {
  const auto sampled = static_cast<size_t>(vocab_sampled);
  summarise(logits.first(sampled), summary);
  bool bad = summary.has_bad;
  for (const float z : logits.subspan(sampled)) bad |= !(z < kInfinity);
  if (bad) return Error{ErrorCode::kInternal, "the model's logits hold NaN or infinity", ""};
  return {};
}

double uniform(const SampleInput& in, const SamplingParams& p) {
  const auto words =
      philox4x32({static_cast<uint32_t>(in.position), p.choice_idx, 0, 0},
                 {static_cast<uint32_t>(p.seed), static_cast<uint32_t>(p.seed >> 32)});
  const uint64_t bits = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;  // 52 bits and a half: never 0, never 1
}

// The first index whose weight lifts the running sum over `point`; rounding may leave none, then
// the last with any weight.
template <typename Weights, typename Value>
size_t walk(const Weights& weights, double point, const Value& value) {
  double sum = 0;
  size_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto weight = static_cast<double>(value(weights[i]));
    if (weight <= 0) continue;
    last = i;
    sum += weight;
    if (sum > point) return i;
  }
  return last;
}

int32_t first_best(Row row, const RowSummary& summary) {
  const auto& blocks = summary.block_max;
  const auto block = static_cast<size_t>(std::find(blocks.begin(), blocks.end(), summary.max_key) -
                                         blocks.begin());
  size_t id = block * kRowBlock;
  while (key_of(row[id]) != summary.max_key) ++id;
  return static_cast<int32_t>(id);
}

// Temperature alone: every id may be drawn. Blocks first, then inside one.
int32_t draw_from_all(Row row, const RowSummary& summary, float temperature, double u,
                      SamplerScratch& s) {
  s.block_sums.clear();
  const double total =
      weigh_row(row, value_of(summary.max_key), temperature, s.weights, s.block_sums);
  const double point = u * total;
  const size_t block = walk(s.block_sums, point, [](double sum) { return sum; });
  double before = 0;
  for (size_t i = 0; i < block; ++i) before += s.block_sums[i];
  const size_t begin = block * kRowBlock;
  const Row inside = Row(s.weights).subspan(begin, std::min<size_t>(kRowBlock, row.size() - begin));
  const size_t at = walk(inside, point - before, [](float w) { return w; });
  return static_cast<int32_t>(begin + at);
}

// The ids that top_k, top_p and min_p may leave, in order of id: exact for top_k, for the other two
// a few too many. Returns the weight of all that top_p counts: of the row, or of the k.
double collect(Row row, const RowSummary& summary, const SamplingParams& p, SamplerScratch& s) {
  const float max = value_of(summary.max_key);
  const double temperature = p.temperature;
  const auto key_at_weight = [&](double weight) {
    const double lowest = std::numeric_limits<float>::lowest();
    return key_of(static_cast<float>(std::max(max + temperature * std::log(weight), lowest)));
  };
  s.candidates.clear();
  double total = 0;
  const bool by_k = p.top_k > 0 && static_cast<size_t>(p.top_k) < row.size();
  if (by_k) {
    gather(row, summary, threshold_for(summary, p.top_k, s.block_keys), s.candidates);
    keep_top_k(s.candidates, p.top_k, s.histogram);
  } else if (p.top_p < 1.0F) {
    s.block_sums.clear();
    total = weigh_row(row, max, p.temperature, s.weights, s.block_sums);
    // All ids below this weight together have less than a quarter of what top_p leaves out.
    const double least = 0.25 * (1.0 - p.top_p) * total / static_cast<double>(row.size());
    gather(row, summary, key_at_weight(least), s.candidates);
  } else {
    gather(row, summary, key_at_weight(0.5 * p.min_p), s.candidates);
  }
  double sum = 0;
  for (Candidate& c : s.candidates) {
    c.weight = total > 0 ? s.weights[static_cast<size_t>(c.id)]
                         : exp_nonpositive((value_of(c.key) - max) / p.temperature);
    sum += c.weight;
  }
  return total > 0 ? total : sum;
}

int32_t draw(Row row, const RowSummary& summary, const SamplingParams& p, double u,
             SamplerScratch& s) {
  if (p.temperature == 0.0F) return first_best(row, summary);
  const bool by_k = p.top_k > 0 && static_cast<size_t>(p.top_k) < row.size();
  if (!by_k && p.top_p == 1.0F && p.min_p == 0.0F) {
    return draw_from_all(row, summary, p.temperature, u, s);
  }
  const double mass = collect(row, summary, p, s);
  if (p.top_p < 1.0F) keep_top_mass(s.candidates, mass * p.top_p, s.histogram);
  if (p.min_p > 0.0F) {
    std::erase_if(s.candidates, [&](const Candidate& c) { return c.weight < p.min_p; });
  }
  double total = 0;
  for (const Candidate& c : s.candidates) total += c.weight;
  const size_t at = walk(s.candidates, u * total, [](const Candidate& c) { return c.weight; });
  return s.candidates[at].id;
}

// Fills logprob and top from the unchanged row.
void add_logprobs(Row row, Row sampled, const RowSummary& summary, int32_t k, SamplerScratch& s,
                  SampledToken& out) {
  const float max = value_of(summary.max_key);
  s.block_sums.clear();
  const double log_sum = std::log(weigh_row(sampled, max, 1.0F, s.weights, s.block_sums));
  const auto logprob = [&](float z) {
    return static_cast<float>((static_cast<double>(z) - max) - log_sum);
  };
  out.logprob = logprob(row[static_cast<size_t>(out.token)]);
  if (k == 0) return;
  s.candidates.clear();
  gather(sampled, summary, threshold_for(summary, k, s.block_keys), s.candidates);
  keep_top_k(s.candidates, k, s.histogram);
  std::sort(s.candidates.begin(), s.candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.key != b.key ? a.key > b.key : a.id < b.id;
  });
  for (const Candidate& c : s.candidates) {
    out.top.push_back({.token = c.id, .logprob = logprob(value_of(c.key))});
  }
}

Result<void> check_any_left(const RowSummary& summary) {
  if (summary.max_key > key_of(-kInfinity)) return {};
  return Error{ErrorCode::kInternal, "no token is left to draw: every one is masked", ""};
}

}  // namespace

void SamplerScratchDelete::operator()(SamplerScratch* p) const {
  delete p;
}

SamplerScratchPtr make_sampler_scratch(int32_t vocab) {
  CHECK(vocab > 0, "{}", vocab);
  return SamplerScratchPtr(new SamplerScratch(vocab));
}

Result<SampledToken> sample(const SampleInput& in, const SamplingParams& params,
                            SamplerScratch& scratch) {
  check_params(in, params, scratch);
  TRY(summarise_raw(in.logits, in.vocab_sampled, scratch.raw_summary));
  const auto sampled = static_cast<size_t>(in.vocab_sampled);
  const Row raw = in.logits.first(sampled);
  const Row row = adjusted_row(in, params, scratch).first(sampled);
  const bool changed = row.data() != raw.data();
  if (changed) summarise(row, scratch.adjusted_summary);
  const RowSummary& summary = changed ? scratch.adjusted_summary : scratch.raw_summary;
  TRY(check_any_left(summary));
  SampledToken out{.token = draw(row, summary, params, uniform(in, params), scratch)};
  if (params.logprobs >= 0) {
    add_logprobs(in.logits, raw, scratch.raw_summary, params.logprobs, scratch, out);
  }
  return out;
}

Result<SampledToken> score(Row logits, int32_t vocab_sampled, int32_t token, int32_t k,
                           SamplerScratch& scratch) {
  CHECK(!logits.empty() && logits.size() <= scratch.weights.size(), "{}", logits.size());
  CHECK(vocab_sampled >= 1 && static_cast<size_t>(vocab_sampled) <= logits.size() && k >= 0,
        "{} of {}, k {}", vocab_sampled, logits.size(), k);
  TRY(summarise_raw(logits, vocab_sampled, scratch.raw_summary));
  TRY(check_any_left(scratch.raw_summary));
  SampledToken out{.token = static_cast<int32_t>(checked_id(token, logits.size()))};
  add_logprobs(logits, logits.first(static_cast<size_t>(vocab_sampled)), scratch.raw_summary, k,
               scratch, out);
  return out;
}

}  // namespace tandem::model
