// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/check.h"

namespace tandem::text {
namespace {

constexpr int32_t kDead = -1;  // a symbol that was merged into its left neighbour
constexpr size_t kPieceBytesMax = size_t{1} << 30;

uint64_t load64(const char* p) {
  uint64_t value = 0;
  std::memcpy(&value, p, 8);
  return value;
}

uint64_t load32(const char* p) {
  uint32_t value = 0;
  std::memcpy(&value, p, 4);
  return value;
}

// The bytes of a piece of at most 12 bytes as numbers, the rest zero; never reads outside of it.
struct ShortKey {
  uint64_t low;
  uint32_t high;

  explicit ShortKey(std::string_view piece) {
    const char* p = piece.data();
    const size_t n = piece.size();
    high = 0;
    if (n >= 8) {
      low = load64(p);
      if (n > 8) high = static_cast<uint32_t>(load64(p + n - 8) >> (8 * (16 - n)));
    } else if (n >= 4) {
      low = load32(p) | (load32(p + n - 4) << (8 * (n - 4)));
    } else {
      const auto byte = [p](size_t i) { return uint64_t{static_cast<uint8_t>(p[i])}; };
      low = byte(0) | (byte(n / 2) << (8 * (n / 2))) | (byte(n - 1) << (8 * (n - 1)));
    }
  }
  [[nodiscard]] size_t hash() const {
    uint64_t h = (low ^ (uint64_t{high} << 17)) * 0x9E3779B97F4A7C15U;
    h = (h ^ (h >> 29) ^ high) * 0xC2B2AE3D27D4EB4FU;
    return h >> 32;
  }
};

size_t hash_pair(uint64_t pair) {
  const uint64_t h = (pair ^ (pair >> 23)) * 0x9E3779B97F4A7C15U;
  return (h ^ (h >> 29)) * 0xC2B2AE3D27D4EB4FU >> 32;
}

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

size_t table_size(size_t count) {
  return std::bit_ceil(std::max<size_t>(count * 2, 16));
}

}  // namespace

Bpe::Bpe(const BpeTable& table) : byte_pairs_(65536) {
  for (size_t id = 0; id < table.token_bytes.size(); ++id) {
    const std::string& bytes = table.token_bytes[id];
    if (bytes.size() == 1) byte_ids_[static_cast<uint8_t>(bytes[0])] = static_cast<int32_t>(id);
  }
  add_merges(table.merges);
  add_tokens(table);
}

void Bpe::add_merges(const std::vector<Merge>& merges) {
  pairs_.resize(table_size(merges.size()));
  const size_t mask = pairs_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& m = merges[rank];
    const uint64_t pair = pair_of(m.left, m.right);
    size_t slot = hash_pair(pair) & mask;
    while (pairs_[slot].pair != UINT64_MAX && pairs_[slot].pair != pair) slot = (slot + 1) & mask;
    pairs_[slot] = {pair, static_cast<uint32_t>(rank), m.result};
  }
  for (size_t first = 0; first < 256; ++first) {
    for (size_t second = 0; second < 256; ++second) {
      byte_pairs_[first << 8 | second] = find_merge(byte_ids_[first], byte_ids_[second]);
    }
  }
}

// A token is found as a whole only if its merges lead to it: then the look-up gives what merging
// would give.
void Bpe::add_tokens(const BpeTable& table) {
  Scratch scratch;
  std::vector<int32_t> ids;
  std::vector<bool> is_reached(table.token_bytes.size());
  size_t short_count = 0;
  size_t long_count = 0;
  for (size_t id = 0; id < table.token_bytes.size(); ++id) {
    const std::string& bytes = table.token_bytes[id];
    if (bytes.empty()) continue;
    ids.clear();
    if (!table.ignore_merges) merge(bytes, ids, scratch);
    is_reached[id] = table.ignore_merges || (ids.size() == 1 && ids[0] == static_cast<int32_t>(id));
    if (is_reached[id]) ++(bytes.size() <= kShortBytes ? short_count : long_count);
  }
  short_tokens_.resize(table_size(short_count));
  long_tokens_.resize(table_size(long_count));
  long_spans_.resize(long_tokens_.size());
  for (size_t id = 0; id < table.token_bytes.size(); ++id) {
    if (is_reached[id]) add_token(table.token_bytes[id], static_cast<int32_t>(id));
  }
}

void Bpe::add_token(std::string_view bytes, int32_t id) {
  longest_ = std::max(longest_, bytes.size());
  if (bytes.size() <= kShortBytes) {
    const ShortKey key(bytes);
    const size_t mask = short_tokens_.size() - 1;
    size_t slot = key.hash() & mask;
    while (short_tokens_[slot].id_length != 0) slot = (slot + 1) & mask;
    short_tokens_[slot] = {key.low, key.high,
                           static_cast<uint32_t>(id) << 8 | static_cast<uint32_t>(bytes.size())};
    return;
  }
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  const size_t mask = long_tokens_.size() - 1;
  size_t slot = hash & mask;
  while (long_tokens_[slot].id >= 0) slot = (slot + 1) & mask;
  long_tokens_[slot] = {static_cast<uint32_t>(hash >> 32), id};
  long_spans_[slot] = {static_cast<uint32_t>(long_bytes_.size()),
                       static_cast<uint32_t>(bytes.size())};
  long_bytes_ += bytes;
}

int32_t Bpe::find_short(std::string_view piece) const {
  const ShortKey key(piece);
  const size_t mask = short_tokens_.size() - 1;
  for (size_t slot = key.hash() & mask;; slot = (slot + 1) & mask) {
    const ShortEntry& entry = short_tokens_[slot];
    if (entry.low == key.low && entry.high == key.high &&
        (entry.id_length & 0xFF) == piece.size()) {
      return static_cast<int32_t>(entry.id_length >> 8);
    }
    if (entry.id_length == 0) return -1;
  }
}

int32_t Bpe::find_long(std::string_view piece) const {
  const uint64_t hash = XXH3_64bits(piece.data(), piece.size());
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = long_tokens_.size() - 1;
  for (size_t slot = hash & mask; long_tokens_[slot].id >= 0; slot = (slot + 1) & mask) {
    if (long_tokens_[slot].tag != tag) continue;
    const auto [offset, size] = long_spans_[slot];
    if (std::string_view(long_bytes_).substr(offset, size) == piece) return long_tokens_[slot].id;
  }
  return -1;
}

int32_t Bpe::find_token(std::string_view piece) const {
  if (piece.size() <= kShortBytes) return find_short(piece);
  return piece.size() <= longest_ ? find_long(piece) : -1;
}

Bpe::Merged Bpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = pairs_.size() - 1;
  for (size_t slot = hash_pair(pair) & mask;; slot = (slot + 1) & mask) {
    const PairEntry& entry = pairs_[slot];
    if (entry.pair == pair) return {entry.rank, entry.result};
    if (entry.pair == UINT64_MAX) return {};
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out, Scratch& scratch) const {
  const int32_t id = find_token(piece);
  if (id >= 0) {
    out.push_back(id);
  } else {
    merge(piece, out, scratch);
  }
}

void Bpe::merge(std::string_view piece, std::vector<int32_t>& out, Scratch& scratch) const {
  CHECK(piece.size() <= kPieceBytesMax, "a piece of {} bytes", piece.size());
  if (piece.size() <= kSmallBytes) {
    merge_small(piece, out);
  } else {
    merge_large(piece, out, scratch);
  }
}

// Symbols and the merge of each with its right neighbour in two arrays; the best is found by a
// scan.
void Bpe::merge_small(std::string_view piece, std::vector<int32_t>& out) const {
  std::array<int32_t, kSmallBytes> ids;
  std::array<Merged, kSmallBytes> merges;  // [i]: of symbols i and i + 1
  size_t count = piece.size();
  const auto byte = [piece](size_t i) { return size_t{static_cast<uint8_t>(piece[i])}; };
  for (size_t i = 0; i < count; ++i) ids[i] = byte_ids_[byte(i)];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = byte_pairs_[byte(i) << 8 | byte(i + 1)];
  while (count > 1) {
    size_t best = 0;
    uint32_t best_rank = merges[0].rank;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < best_rank) {
        best_rank = merges[i].rank;
        best = i;
      }
    }
    if (best_rank == kNoRank) break;
    ids[best] = merges[best].result;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      merges[i - 1] = merges[i];
    }
    --count;
    if (best > 0) merges[best - 1] = find_merge(ids[best - 1], ids[best]);
    if (best + 1 < count) merges[best] = find_merge(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
}

// A linked list of symbols and a heap of candidate merges; candidates whose symbols have changed
// since are dropped when they come up.
void Bpe::merge_large(std::string_view piece, std::vector<int32_t>& out, Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  const auto worse = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.order > b.order;
  };
  const auto order_of = [](uint32_t rank, int32_t at) {
    return uint64_t{rank} << 32 | static_cast<uint32_t>(at);
  };
  const auto size = static_cast<int32_t>(piece.size());
  const auto byte = [piece](int32_t i) {
    return size_t{static_cast<uint8_t>(piece[static_cast<size_t>(i)])};
  };
  const auto symbol = [&symbols](int32_t i) -> Scratch::Symbol& {
    return symbols[static_cast<size_t>(i)];
  };
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < size; ++i) {
    symbols.push_back({byte_ids_[byte(i)], i - 1, i + 1 < size ? i + 1 : kDead});
  }
  for (int32_t i = 0; i + 1 < size; ++i) {
    const Merged merged = byte_pairs_[byte(i) << 8 | byte(i + 1)];
    if (merged.rank != kNoRank) {
      heap.push_back({order_of(merged.rank, i), symbol(i).id, symbol(i + 1).id});
    }
  }
  std::make_heap(heap.begin(), heap.end(), worse);
  const auto offer = [&](int32_t left, int32_t right) {
    if (left == kDead || right == kDead) return;
    const Merged merged = find_merge(symbol(left).id, symbol(right).id);
    if (merged.rank == kNoRank) return;
    heap.push_back({order_of(merged.rank, left), symbol(left).id, symbol(right).id});
    std::push_heap(heap.begin(), heap.end(), worse);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Scratch::Candidate candidate = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(candidate.order & UINT32_MAX);
    const int32_t right = symbol(at).next;
    if (symbol(at).id != candidate.left || right == kDead || symbol(right).id != candidate.right) {
      continue;
    }
    symbol(at).id = find_merge(candidate.left, candidate.right).result;
    symbol(at).next = symbol(right).next;
    symbol(right).id = kDead;
    if (symbol(at).next != kDead) symbol(symbol(at).next).previous = at;
    offer(symbol(at).previous, at);
    offer(at, symbol(at).next);
  }
  for (int32_t i = 0; i != kDead; i = symbol(i).next) out.push_back(symbol(i).id);
}

}  // namespace tandem::text
