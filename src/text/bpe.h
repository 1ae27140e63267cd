// SPDX-License-Identifier: Apache-2.0
// Byte-level byte pair encoding of one piece of text. tokenizer.cpp owns one; it is const, so
// threads share it.
// Source: Sennrich et al. 2016 (arXiv:1508.07909); order of merges as in Hugging Face tokenizers:
// the pair of lowest rank first, the leftmost among equals.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {

struct Merge {
  int32_t left, right, result;  // token ids; the rank is the place in the list
};

struct BpeTable {
  std::vector<std::string> token_bytes;  // by id; empty where an id has no BPE token
  std::vector<Merge> merges;             // best first
  bool ignore_merges = false;  // a piece that is a token becomes it even if no merges lead there
};

class Bpe {
 public:
  static constexpr int32_t kIdMax = (1 << 24) - 2;  // ids share 32 bits with a length

  // Memory of one call of encode, reused from piece to piece.
  class Scratch {
    friend class Bpe;
    struct Symbol {
      int32_t id, previous, next;
    };
    struct Candidate {
      uint64_t order;  // rank << 32 | position: smallest first
      int32_t left, right;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  // The table is already checked: ids <= kIdMax, every single byte has a token, no token is empty,
  // merges name tokens, and each result is its parts joined.
  explicit Bpe(const BpeTable& table);

  // Appends the ids of `piece`, 1 byte to 1 GiB. Time: one look-up if the piece is a token, else
  // O(n^2) array steps up to kSmallBytes and O(n log n) above.
  void encode(std::string_view piece, std::vector<int32_t>& out, Scratch& scratch) const;

 private:
  static constexpr size_t kSmallBytes = 64;
  static constexpr size_t kShortBytes = 12;
  static constexpr uint32_t kNoRank = UINT32_MAX;

  // A token of at most 12 bytes with its text inside, so that a look-up touches one cache line.
  struct ShortEntry {
    uint64_t low = 0;        // bytes 0 .. 7
    uint32_t high = 0;       // bytes 8 .. 11
    uint32_t id_length = 0;  // id << 8 | bytes; 0: free
  };
  struct LongEntry {
    uint32_t tag = 0;  // of the hash
    int32_t id = -1;   // -1: free
  };
  struct PairEntry {
    uint64_t pair = UINT64_MAX;  // left << 32 | right; UINT64_MAX: free
    uint32_t rank = 0;
    int32_t result = 0;
  };
  struct Merged {
    uint32_t rank = kNoRank;
    int32_t result = 0;
  };

  void add_merges(const std::vector<Merge>& merges);
  void add_tokens(const BpeTable& table);
  void add_token(std::string_view bytes, int32_t id);
  [[nodiscard]] int32_t find_token(std::string_view piece) const;  // -1: none
  [[nodiscard]] int32_t find_short(std::string_view piece) const;
  [[nodiscard]] int32_t find_long(std::string_view piece) const;
  [[nodiscard]] Merged find_merge(int32_t left, int32_t right) const;
  void merge(std::string_view piece, std::vector<int32_t>& out, Scratch& scratch) const;
  void merge_small(std::string_view piece, std::vector<int32_t>& out) const;
  void merge_large(std::string_view piece, std::vector<int32_t>& out, Scratch& scratch) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<Merged> byte_pairs_;  // [first byte << 8 | second byte]
  std::vector<PairEntry> pairs_;    // open addressing, at most half full
  std::vector<ShortEntry> short_tokens_;
  std::vector<LongEntry> long_tokens_;
  size_t longest_ = 0;
  std::string long_bytes_;                                 // texts of long tokens, joined
  std::vector<std::pair<uint32_t, uint32_t>> long_spans_;  // by place in long_tokens_: offset, size
};

}  // namespace tandem::text
