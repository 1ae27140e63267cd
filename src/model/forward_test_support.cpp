// SPDX-License-Identifier: Apache-2.0
#include "model/forward_test_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tandem::model {
namespace {

constexpr ForwardLimits kLimits{.batch_rows_max = Engine::kRowsMax,
                                .logit_rows_max = Engine::kRowsMax,
                                .context_tokens_max = 4096};

ModelConfig base_config() {
  ModelConfig c;
  c.hidden = 64;
  c.layers = 2;
  c.q_heads = 4;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.experts = 8;
  c.experts_per_token = 2;
  c.moe_intermediate = 48;
  c.intermediate = 96;
  c.layer_is_moe = {true, true};
  c.vocab = 160;
  c.max_position = 1024;
  c.rope.theta = 10000.0;
  c.mtp_layers = 1;
  return c;
}

// [0, count) as one sequence's rows of a batch of its own.
SequenceRows rows_of(int32_t begin, int32_t count, std::span<const PageId> pages) {
  return {.row_begin = 0, .row_count = count, .position_begin = begin, .pages = pages};
}

std::vector<int32_t> ascending(int32_t begin, int32_t count) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

}  // namespace

std::vector<NamedConfig> test_configs() {
  std::vector<NamedConfig> out{{"Moe", base_config()}};
  ModelConfig one_kv_head = base_config();
  one_kv_head.kv_heads = 1;
  one_kv_head.q_heads = 5;
  one_kv_head.tie_word_embeddings = true;
  one_kv_head.rope = {
      .theta = 10000.0, .yarn = true, .yarn_factor = 4.0, .yarn_original_max = 64.0};
  one_kv_head.mtp_layers = 0;
  out.push_back({"OneKvHeadTiedYarn", one_kv_head});
  ModelConfig dense = base_config();
  dense.family = Family::kQwen3;
  dense.hidden = 72;
  dense.q_heads = 6;
  dense.kv_heads = 3;
  dense.head_dim = 16;
  dense.experts = dense.experts_per_token = dense.moe_intermediate = 0;
  dense.intermediate = 200;
  dense.layer_is_moe = {false, false};
  dense.vocab = 131;
  dense.mtp_layers = 0;
  out.push_back({"DenseOddWidths", dense});
  ModelConfig mixed = base_config();
  mixed.hidden = 40;
  mixed.layers = 3;
  mixed.layer_is_moe = {false, true, true};
  mixed.experts = 5;
  mixed.experts_per_token = 3;
  mixed.moe_intermediate = 21;
  mixed.norm_topk_prob = false;
  mixed.mtp_layers = 0;
  out.push_back({"MixedDenseMoe", mixed});
  return out;
}

ModelConfig small_moe_config() {
  ModelConfig c = base_config();
  c.hidden = 256;
  c.layers = 4;
  c.q_heads = 8;
  c.kv_heads = 4;
  c.head_dim = 128;
  c.experts = 16;
  c.experts_per_token = 4;
  c.moe_intermediate = 128;
  c.layer_is_moe.assign(4, true);
  c.vocab = 4096;
  c.max_position = 4096;
  return c;
}

std::vector<int32_t> random_tokens(const ModelConfig& config, int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(config.vocab))));
  }
  return out;
}

bool Logits::same_bits(const Logits& other) const {
  return values.size() == other.values.size() && hidden == other.hidden &&
         std::memcmp(values.data(), other.values.data(), values.size() * sizeof(float)) == 0;
}

bool Logits::same_row(size_t i, const Logits& other, size_t other_row) const {
  return std::memcmp(row(i).data(), other.row(other_row).data(), row(i).size_bytes()) == 0;
}

Engine::Engine(const ModelConfig& config, const Weights& weights, int32_t page_tokens,
               kernels::TestTeam* team)
    : page_tokens_(page_tokens),
      exec_(std::make_unique<kernels::TestExec>(0, team)),
      model_(Model::create(config, weights, exec_->exec)) {
  exec_->scratch = Scratch(scratch_bytes());
}

size_t Engine::scratch_bytes() const {
  return model_.scratch_bytes(kLimits);
}

KvStore poisoned_store(const KvLayout& layout, int32_t pages) {
  KvStore store(layout, pages);
  for (int32_t p = 0; p < pages; ++p) store.poison(PageId{p});
  return store;
}

std::vector<PageId> scattered_pages(int32_t pages, size_t count, uint64_t seed) {
  std::vector<PageId> all;
  for (int32_t p = 0; p < pages; ++p) all.push_back(PageId{p});
  Rng rng(seed);
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[rng.below(i)]);
  all.resize(count);
  return all;
}

Logits Engine::run(const Batch& batch, const KvStore& kv) const {
  const auto wanted = static_cast<int64_t>(batch.logit_rows.size());
  const ModelConfig& config = model_.config();
  Logits out{.vocab = config.vocab};
  out.values.resize(static_cast<size_t>(wanted * config.vocab));
  std::vector<bf16> hidden(static_cast<size_t>(wanted * config.hidden));
  model_.forward(exec_->exec, batch, kv,
                 Tensor::dense(out.values.data(), DType::kF32, {wanted, config.vocab}),
                 Tensor::dense(hidden.data(), DType::kBf16, {wanted, config.hidden}), {});
  for (const bf16 h : hidden) out.hidden.push_back(static_cast<float>(h));
  return out;
}

Logits Engine::all_logits(std::span<const int32_t> tokens) const {
  return chunked_logits(tokens, std::vector<int32_t>{static_cast<int32_t>(tokens.size())});
}

Logits Engine::chunked_logits(std::span<const int32_t> tokens,
                              std::span<const int32_t> chunks) const {
  const KvStore kv = poisoned_store(model_.kv_layout(page_tokens_), kPages);
  const std::vector<PageId> pages = scattered_pages(kPages, kPages, 3);
  Logits out{.vocab = model_.config().vocab};
  int32_t begin = 0;
  for (const int32_t count : chunks) {
    const std::vector<int32_t> wanted = ascending(0, count);
    const std::vector<SequenceRows> sequences{rows_of(begin, count, pages)};
    const Logits part =
        run({.tokens = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
             .sequences = sequences,
             .logit_rows = wanted},
            kv);
    out.values.insert(out.values.end(), part.values.begin(), part.values.end());
    out.hidden.insert(out.hidden.end(), part.hidden.begin(), part.hidden.end());
    begin += count;
  }
  CHECK(begin == static_cast<int32_t>(tokens.size()));
  return out;
}

Logits Engine::some_logits(std::span<const int32_t> tokens, std::span<const int32_t> rows) const {
  const KvStore kv = poisoned_store(model_.kv_layout(page_tokens_), kPages);
  const std::vector<PageId> pages = scattered_pages(kPages, kPages, 4);
  const std::vector<SequenceRows> sequences{rows_of(0, static_cast<int32_t>(tokens.size()), pages)};
  return run({.tokens = tokens, .sequences = sequences, .logit_rows = rows}, kv);
}

Logits Engine::mtp_logits(std::span<const float> hidden,
                          std::span<const int32_t> next_tokens) const {
  const ModelConfig& config = model_.config();
  const auto count = static_cast<int32_t>(next_tokens.size());
  KvLayout layout = model_.kv_layout(page_tokens_);
  layout.layers = 1;
  const KvStore kv = poisoned_store(layout, kPages);
  const std::vector<PageId> pages = scattered_pages(kPages, kPages, 5);
  const std::vector<SequenceRows> sequences{rows_of(0, count, pages)};
  const std::vector<int32_t> wanted = ascending(0, count);
  std::vector<bf16> in, out_hidden(hidden.size());
  for (const float h : hidden) in.push_back(bf16(h));
  Logits out{.vocab = config.vocab};
  out.values.resize(next_tokens.size() * static_cast<size_t>(config.vocab));
  model_.mtp_forward(exec_->exec,
                     {.tokens = next_tokens, .sequences = sequences, .logit_rows = wanted},
                     Tensor::dense(in.data(), DType::kBf16, {count, config.hidden}), kv,
                     Tensor::dense(out.values.data(), DType::kF32, {count, config.vocab}),
                     Tensor::dense(out_hidden.data(), DType::kBf16, {count, config.hidden}));
  for (const bf16 h : out_hidden) out.hidden.push_back(static_cast<float>(h));
  return out;
}

std::string mixed_batch_difference(const Engine& engine, uint64_t seed) {
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<PageId> pages;
    Logits alone;
    int32_t done = 0;
  };
  Rng rng(seed);
  const std::vector<PageId> all = scattered_pages(Engine::kPages, Engine::kPages, seed);
  const KvStore kv = poisoned_store(engine.model().kv_layout(engine.page_tokens()), Engine::kPages);
  std::vector<Sequence> sequences(5);
  size_t next_page = 0;
  for (Sequence& s : sequences) {
    s.tokens = random_tokens(engine.model().config(), rng.between(1, 140), rng.next_u64());
    const size_t page_tokens = static_cast<size_t>(engine.page_tokens());
    const size_t count = (s.tokens.size() + page_tokens - 1) / page_tokens;
    s.pages.assign(all.begin() + static_cast<int64_t>(next_page),
                   all.begin() + static_cast<int64_t>(next_page + count));
    next_page += count;
    s.alone = engine.all_logits(s.tokens);
  }
  const auto unfinished = [&] {
    return std::ranges::any_of(sequences, [](const Sequence& s) {
      return s.done < static_cast<int32_t>(s.tokens.size());
    });
  };
  while (unfinished()) {
    std::vector<int32_t> tokens;
    std::vector<SequenceRows> rows;
    std::vector<std::pair<size_t, size_t>> whose;  // per row: sequence, position
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = sequences[i];
      const auto left = static_cast<int32_t>(s.tokens.size()) - s.done;
      if (left == 0 || rng.below(4) == 0) continue;
      const auto count =
          static_cast<int32_t>(rng.below(2) == 0 ? 1 : rng.between(1, std::min<int64_t>(left, 45)));
      rows.push_back({.row_begin = static_cast<int32_t>(tokens.size()),
                      .row_count = count,
                      .position_begin = s.done,
                      .pages = s.pages});
      for (int32_t r = 0; r < count; ++r, ++s.done) {
        tokens.push_back(s.tokens[static_cast<size_t>(s.done)]);
        whose.emplace_back(i, static_cast<size_t>(s.done));
      }
    }
    if (tokens.empty()) continue;
    const std::vector<int32_t> wanted = ascending(0, static_cast<int32_t>(tokens.size()));
    const Logits got = engine.run({.tokens = tokens, .sequences = rows, .logit_rows = wanted}, kv);
    for (size_t r = 0; r < whose.size(); ++r) {
      const auto& [i, position] = whose[r];
      if (!got.same_row(r, sequences[i].alone, position)) {
        return fmt::format("sequence {} position {} in a batch of {}", i, position, tokens.size());
      }
    }
  }
  return {};
}

}  // namespace tandem::model
