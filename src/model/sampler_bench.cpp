// SPDX-License-Identifier: Apache-2.0
// Time to draw one token from one row, beside the plain way: softmax everything, sort everything.
// Rows are normal with standard deviation 3, about as peaked as a chat model's.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "bench/report.h"
#include "core/rng.h"
#include "model/sampler.h"

namespace {

using tandem::SamplingParams;

// The textbook sampler that this one replaces.
int32_t sample_by_sorting(const std::vector<float>& logits, const SamplingParams& p, float u,
                          std::vector<std::pair<float, int32_t>>& working) {
  working.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    working.emplace_back(logits[i] / p.temperature, static_cast<int32_t>(i));
  }
  std::sort(working.begin(), working.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  if (p.top_k > 0) working.resize(std::min(working.size(), static_cast<size_t>(p.top_k)));
  const float max = working[0].first;
  float total = 0;
  for (auto& [z, id] : working) total += z = std::exp(z - max);
  size_t count = 0;
  float sum = 0;
  while (count < working.size() && sum < p.top_p * total) sum += working[count++].first;
  const float point = u * sum;
  float reached = 0;
  for (size_t i = 0; i < count; ++i) {
    reached += working[i].first;
    if (reached > point) return working[i].second;
  }
  return working[0].second;
}

struct Setting {
  std::string name;
  SamplingParams params;
  double spread = 3.0;
};

void bench_setting(tandem::bench::Report& report, int32_t vocab, const Setting& setting) {
  using namespace tandem;
  const std::string case_name = "V=" + std::to_string(vocab) + " " + setting.name;
  if (!report.wants("sampler/sample", case_name)) return;
  Rng rng(1);
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& z : logits) z = static_cast<float>(setting.spread) * rng.normal();
  const auto scratch = model::make_sampler_scratch(vocab);
  std::vector<int32_t> output(1000);
  for (int32_t& id : output) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
  int32_t position = 0;
  const auto ours = bench::measure([&] {
    const auto out = model::sample(
        {.logits = logits, .vocab_sampled = vocab, .position = position++, .output = output},
        setting.params, *scratch);
    bench::keep(&out);
  });
  std::vector<std::pair<float, int32_t>> working;
  bench::Timing peer;
  if (setting.params.temperature > 0) {
    peer = bench::measure([&] {
      const int32_t id = sample_by_sorting(logits, setting.params, rng.uniform(), working);
      bench::keep(&id);
    });
  } else {
    peer = bench::measure([&] {
      const auto at = std::max_element(logits.begin(), logits.end());
      bench::keep(&*at);
    });
  }
  // The bound: reading the row once, from wherever it lies.
  std::vector<float> copy(logits.size());
  const auto read = bench::measure([&] {
    std::memcpy(copy.data(), logits.data(), logits.size() * sizeof(float));
    bench::keep(copy.data());
  });
  report.add({.name = "sampler/sample",
              .case_name = case_name,
              .value = ours.median_s * 1e6,
              .unit = "us",
              .limit = read.median_s * 1e6,
              .peer = setting.params.temperature > 0 ? "sort everything" : "std::max_element",
              .peer_value = peer.median_s * 1e6,
              .min = ours.min_s * 1e6,
              .max = ours.max_s * 1e6,
              .repeats = ours.repeats});
}

}  // namespace

int main(int argc, char** argv) {
  tandem::bench::Report report(argc, argv, "Sampler, one row on one core");
  const std::vector<Setting> settings{
      {"greedy", {.temperature = 0}},
      {"T=0.6", {.temperature = 0.6F}},
      {"T=0.6 top_k=20 top_p=0.95", {.temperature = 0.6F, .top_k = 20, .top_p = 0.95F}},
      {"T=0.6 top_p=0.95", {.temperature = 0.6F, .top_p = 0.95F}},
      {"T=100 top_p=0.95 (near uniform)", {.temperature = 100.0F, .top_p = 0.95F}},
      {"T=1 min_p=0.05", {.temperature = 1.0F, .min_p = 0.05F}},
      {"T=0.6 top_k=20 top_p=0.95 penalties, 1000 outputs",
       {.temperature = 0.6F,
        .top_k = 20,
        .top_p = 0.95F,
        .repetition_penalty = 1.05F,
        .presence_penalty = 1.5F}},
      {"T=0.6 top_k=20 top_p=0.95 logprobs=20",
       {.temperature = 0.6F, .top_k = 20, .top_p = 0.95F, .logprobs = 20}},
  };
  for (const int32_t vocab : {4096, 151936}) {
    for (const Setting& setting : settings) bench_setting(report, vocab, setting);
  }
  report.note("limit: a memcpy of the row; the peer ignores penalties and logprobs");
  return report.finish();
}
