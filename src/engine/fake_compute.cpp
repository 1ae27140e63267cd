// SPDX-License-Identifier: Apache-2.0
#include "engine/fake_compute.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace tandem::engine {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014) over two words.
uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9E3779B97F4A7C15ULL * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

constexpr uint64_t kRoot = 0x7a4de3;

uint64_t next_hash(uint64_t before, int32_t token) {
  return mix(before, static_cast<uint64_t>(token));
}

// What the first word of a layer's keys is masked with, so that no two layers hold the same.
uint64_t mask(int32_t slab) {
  return mix(kRoot, static_cast<uint64_t>(slab));
}

// Word `word` of what a head's token slot holds. The first one of a layer's keys gives the running
// hash back, for the rows that go on from there.
uint64_t slot_word(uint64_t hash, int32_t slab, int32_t head, int32_t word) {
  if (slab % 2 == 0 && head == 0 && word == 0) return hash ^ mask(slab);
  return mix(hash, (static_cast<uint64_t>(slab) << 40) | (static_cast<uint64_t>(head) << 20) |
                       static_cast<uint64_t>(word));
}

class Fake {
 public:
  explicit Fake(const FakeSettings& s) : s_(s), words_(s.head_dim / 4) {
    CHECK(s.head_dim % 4 == 0, "head_dim {}", s.head_dim);
  }

  [[nodiscard]] model::KvLayout layout() const {
    return {.layers = s_.layers,
            .kv_heads = s_.kv_heads,
            .head_dim = s_.head_dim,
            .page_tokens = s_.page_tokens};
  }

  void forward(const model::Batch& batch, const model::KvStore& kv, Tensor logits,
               const model::Model::LayerDone& layer_done) const {
    for (int32_t layer = 0; layer < s_.layers; ++layer) {
      for (const model::SequenceRows& rows : batch.sequences) write(batch, rows, kv, layer);
      if (layer_done) layer_done(layer);
    }
    int64_t out = 0;
    size_t sequence = 0;
    for (const int32_t row : batch.logit_rows) {
      while (row >= batch.sequences[sequence].row_begin + batch.sequences[sequence].row_count) {
        ++sequence;
      }
      const model::SequenceRows& rows = batch.sequences[sequence];
      const int32_t position = rows.position_begin + row - rows.row_begin;
      put(logits.row<float>(out++), read(rows, kv, position),
          batch.tokens[static_cast<size_t>(row)] == s_.nan_token);
    }
  }

  // The sum over positions of a hash of their slots, from the KV ...
  [[nodiscard]] uint64_t read(const model::SequenceRows& rows, const model::KvStore& kv,
                              int32_t position) const {
    uint64_t sum = 0;
    for (int32_t p = s_.read_last_only ? position : 0; p <= position; ++p) {
      for (int32_t slab = 0; slab < s_.layers * 2; ++slab) {
        for (int32_t head = 0; head < s_.kv_heads; ++head) {
          const std::byte* at = slot(rows.pages, kv, slab, head, p);
          for (int32_t word = 0; word < words_; ++word) {
            uint64_t value = 0;
            std::memcpy(&value, at + 8 * word, 8);
            sum += mix(value, static_cast<uint64_t>(p));
          }
        }
      }
    }
    return sum;
  }

  // ... and the same from the tokens.
  [[nodiscard]] uint64_t expected(std::span<const int32_t> tokens) const {
    uint64_t sum = 0;
    uint64_t hash = kRoot;
    for (size_t p = 0; p < tokens.size(); ++p) {
      hash = next_hash(hash, tokens[p]);
      if (s_.read_last_only && p + 1 < tokens.size()) continue;
      for (int32_t slab = 0; slab < s_.layers * 2; ++slab) {
        for (int32_t head = 0; head < s_.kv_heads; ++head) {
          for (int32_t word = 0; word < words_; ++word) {
            sum += mix(slot_word(hash, slab, head, word), p);
          }
        }
      }
    }
    return sum;
  }

  [[nodiscard]] int32_t draw(uint64_t sum, int32_t position, const SamplingParams& params) const {
    const uint64_t key = mix(params.seed, params.choice_idx);
    const uint64_t h = mix(mix(sum, key), static_cast<uint64_t>(position));
    return static_cast<int32_t>(h % static_cast<uint64_t>(s_.vocab));
  }

  // Logits carry the sum, 16 bits a column: exact in f32.
  static void put(float* row, uint64_t sum, bool nan) {
    for (int i = 0; i < 4; ++i) row[i] = static_cast<float>((sum >> (16 * i)) & 0xffff);
    if (nan) row[2] = std::numeric_limits<float>::quiet_NaN();
  }
  static Result<uint64_t> get(std::span<const float> row) {
    uint64_t sum = 0;
    for (size_t i = 0; i < 4; ++i) {
      if (std::isnan(row[i])) return Error{ErrorCode::kInternal, "NaN in the logits", ""};
      sum |= static_cast<uint64_t>(row[i]) << (16 * i);
    }
    return sum;
  }

 private:
  static std::byte* slot(std::span<const PageId> pages, const model::KvStore& kv, int32_t slab,
                         int32_t head, int32_t position) {
    const model::KvLayout& layout = kv.layout();
    const PageId page = pages[static_cast<size_t>(position / layout.page_tokens)];
    const auto in_page = static_cast<size_t>(position % layout.page_tokens);
    return kv.page(slab / 2, static_cast<model::KvKind>(slab % 2), page) +
           static_cast<size_t>(head) * layout.head_bytes() +
           in_page * static_cast<size_t>(layout.head_dim) * 2;
  }

  void write(const model::Batch& batch, const model::SequenceRows& rows, const model::KvStore& kv,
             int32_t layer) const {
    uint64_t hash = kRoot;
    if (rows.position_begin > 0) {
      std::memcpy(&hash, slot(rows.pages, kv, 2 * layer, 0, rows.position_begin - 1), 8);
      hash ^= mask(2 * layer);
    }
    for (int32_t r = 0; r < rows.row_count; ++r) {
      hash = next_hash(hash, batch.tokens[static_cast<size_t>(rows.row_begin + r)]);
      for (int32_t slab = 2 * layer; slab < 2 * layer + 2; ++slab) {
        for (int32_t head = 0; head < s_.kv_heads; ++head) {
          std::byte* at = slot(rows.pages, kv, slab, head, rows.position_begin + r);
          for (int32_t word = 0; word < words_; ++word) {
            const uint64_t value = slot_word(hash, slab, head, word);
            std::memcpy(at + 8 * word, &value, 8);
          }
        }
      }
    }
  }

  FakeSettings s_;
  int32_t words_;  // of 8 bytes in a head's token slot
};

}  // namespace

Compute make_fake_compute(const FakeSettings& settings) {
  const Fake fake(settings);
  Compute compute;
  compute.kv_layout = fake.layout();
  compute.vocab = settings.vocab;
  compute.vocab_sampled = settings.vocab;
  compute.forward = [fake](const model::Batch& batch, const model::KvStore& kv, Tensor logits,
                           const model::Model::LayerDone& layer_done) {
    fake.forward(batch, kv, logits, layer_done);
  };
  compute.sample = [fake](const model::SampleInput& input,
                          const SamplingParams& params) -> Result<SampledToken> {
    const uint64_t sum = TRY(Fake::get(input.logits));
    return SampledToken{.token = fake.draw(sum, input.position, params)};
  };
  compute.score = [](std::span<const float> logits, int32_t token,
                     int32_t k) -> Result<SampledToken> {
    const uint64_t sum = TRY(Fake::get(logits));
    SampledToken scored{.token = token, .logprob = -static_cast<float>(sum % 4096)};
    scored.top.resize(static_cast<size_t>(k));
    return scored;
  };
  return compute;
}

int32_t fake_next(const FakeSettings& settings, std::span<const int32_t> tokens,
                  const SamplingParams& params) {
  const Fake fake(settings);
  return fake.draw(fake.expected(tokens), static_cast<int32_t>(tokens.size()), params);
}

}  // namespace tandem::engine
