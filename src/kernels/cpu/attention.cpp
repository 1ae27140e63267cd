// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/ops.h"

namespace tandem::kernels::cpu {
namespace {

// How the rows of a call are cut: an item is a run of tokens of one sequence times some query heads
// of one KV head. The cut changes who computes a row, never how.
struct Cut {
  int64_t kv_heads, group;          // group: query heads of a KV head
  int64_t head_block, head_blocks;  // query heads of an item, items of a group
  int64_t token_block;

  explicit Cut(const AttentionArgs& args)
      : kv_heads(args.k_pages.size(1)),
        group(args.q_heads / kv_heads),
        head_block(std::min<int64_t>(group, kQueryRowsMax)),
        head_blocks((group + head_block - 1) / head_block),
        token_block(std::max<int64_t>(1, kQueryRowsMax / head_block)) {}

  [[nodiscard]] int64_t items_per_block() const { return kv_heads * head_blocks; }
  [[nodiscard]] int64_t items(int64_t rows) const {
    return (rows + token_block - 1) / token_block * items_per_block();
  }
};

struct Item {
  int64_t row = 0, tokens = 0;  // rows of the batch
  int64_t position = 0;         // of the first one
  int64_t kv_head = 0, q_head = 0, heads = 0;
  const int32_t* pages = nullptr;
};

Item item_at(const AttentionArgs& args, const Cut& cut, int64_t sequence, int64_t index) {
  const auto* seq_rows = args.seq_rows.as<int32_t>();
  const int64_t token = index / cut.items_per_block() * cut.token_block;
  const int64_t head = index % cut.items_per_block();
  const int64_t head_in_group = head % cut.head_blocks * cut.head_block;
  const int64_t rows = seq_rows[sequence + 1] - seq_rows[sequence];
  return {.row = seq_rows[sequence] + token,
          .tokens = std::min(cut.token_block, rows - token),
          .position = args.seq_positions.as<int32_t>()[sequence] + token,
          .kv_head = head / cut.head_blocks,
          .q_head = head / cut.head_blocks * cut.group + head_in_group,
          .heads = std::min(cut.head_block, cut.group - head_in_group),
          .pages = args.page_ids.as<int32_t>() + args.seq_pages.as<int32_t>()[sequence]};
}

// Copies of a block's keys and values, widened with zeros to a multiple of 16 values: only heads of
// an odd width need them.
struct WideKeys {
  bf16 k[kKeyBlock][kHeadDimMax], v[kKeyBlock][kHeadDimMax];

  void take(KeyBlock& keys, int64_t head_dim) {
    const auto bytes = static_cast<size_t>(head_dim) * sizeof(bf16);
    for (int j = 0; j < keys.count; ++j) {
      std::memcpy(static_cast<void*>(k[j]), keys.k[j], bytes);
      std::memcpy(static_cast<void*>(v[j]), keys.v[j], bytes);
      keys.k[j] = k[j];
      keys.v[j] = v[j];
    }
  }
};

// Points at the keys [begin, begin + count) of the item's sequence, padded to a multiple of 8.
void find_keys(const AttentionArgs& args, const Item& item, int64_t begin, int count,
               WideKeys* wide, KeyBlock& keys) {
  const int64_t page_tokens = args.k_pages.size(2), head_dim = args.k_pages.size(3);
  keys.count = count;
  for (int j = 0; j < count; ++j) {
    const int64_t position = begin + j;
    const int64_t offset = (item.kv_head * page_tokens + position % page_tokens) * head_dim;
    const int32_t page = item.pages[position / page_tokens];
    keys.k[j] = args.k_pages.row<bf16>(page) + offset;
    keys.v[j] = args.v_pages.row<bf16>(page) + offset;
  }
  if (wide != nullptr) wide->take(keys, head_dim);
  for (int j = count; j < (count + 7) / 8 * 8; ++j) {
    keys.k[j] = keys.k[count - 1];
    keys.v[j] = keys.v[count - 1];
  }
}

void attend(const AttentionArgs& args, const Item& item, WideKeys* wide) {
  const int64_t head_dim = args.k_pages.size(3);
  AttentionTile tile;
  tile.rows = item.tokens * item.heads;
  tile.head_dim = (head_dim + 15) / 16 * 16;
  const auto row_of = [&](const Tensor& t, int64_t r) {
    const int64_t head = item.q_head + r % item.heads;
    return t.row<bf16>(item.row + r / item.heads) + head * head_dim;
  };
  bf16 wide_row[kHeadDimMax];
  const auto head_bytes = static_cast<size_t>(head_dim) * sizeof(bf16);
  for (int64_t r = 0; r < tile.rows; ++r) {
    const bf16* q = row_of(args.q, r);
    if (wide != nullptr) q = static_cast<bf16*>(std::memcpy(&wide_row[0].bits, q, head_bytes));
    attention_tile_load(tile, r, q, args.scale);
  }
  const int64_t keys_end = item.position + item.tokens;
  KeyBlock keys;
  int key_count[kQueryRowsMax];
  for (int64_t begin = 0; begin < keys_end; begin += kKeyBlock) {
    const int64_t count = std::min<int64_t>(kKeyBlock, keys_end - begin);
    find_keys(args, item, begin, static_cast<int>(count), wide, keys);
    // The tokens before `begin` see nothing of this block.
    const int64_t first_token = std::max<int64_t>(0, begin - item.position);
    for (int64_t r = first_token * item.heads; r < tile.rows; ++r) {
      const int64_t seen = item.position + r / item.heads + 1 - begin;
      key_count[r] = static_cast<int>(std::min(seen, count));
    }
    attention_tile_step(tile, keys, first_token * item.heads, key_count);
  }
  for (int64_t r = 0; r < tile.rows; ++r) {
    bf16* y = row_of(args.y, r);
    attention_tile_store(tile, r, wide != nullptr ? wide_row : y);
    if (wide != nullptr) std::memcpy(&y->bits, wide_row, head_bytes);
  }
}

void check_sequence(const AttentionArgs& args, int64_t s) {
  const auto* seq_rows = args.seq_rows.as<int32_t>();
  const auto* seq_pages = args.seq_pages.as<int32_t>();
  const int64_t rows = seq_rows[s + 1] - seq_rows[s];
  const int64_t position = args.seq_positions.as<int32_t>()[s];
  const int64_t page_count = seq_pages[s + 1] - seq_pages[s];
  CHECK(rows >= 0 && position >= 0 && page_count * args.k_pages.size(2) >= position + rows,
        "sequence {}: {} rows at {}, {} pages", s, rows, position, page_count);
  CHECK(seq_pages[s] >= 0 && seq_pages[s + 1] <= args.page_ids.size(0), "sequence {}", s);
  for (int32_t i = seq_pages[s]; i < seq_pages[s + 1]; ++i) {
    const int32_t page = args.page_ids.as<int32_t>()[i];
    CHECK(0 <= page && page < args.k_pages.size(0), "page {} of {}", page, args.k_pages.size(0));
  }
}

}  // namespace

void attention(const Exec& exec, const AttentionArgs& args) {
  const ScratchScope scope(*exec.scratch);
  const int64_t sequences = args.seq_positions.size(0);
  const auto* seq_rows = args.seq_rows.as<int32_t>();
  CHECK(seq_rows[0] == 0 && seq_rows[sequences] == args.q.size(0), "rows {}..{} of {}", seq_rows[0],
        seq_rows[sequences], args.q.size(0));
  const Cut cut(args);
  auto* first_item = exec.scratch->take<int64_t>(sequences + 1);
  first_item[0] = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    check_sequence(args, s);
    first_item[s + 1] = first_item[s] + cut.items(seq_rows[s + 1] - seq_rows[s]);
  }
  const int64_t items = first_item[sequences];
  exec.parallel_for(items, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t item = items - 1 - i;  // the long ones (late tokens) first
      const int64_t s =
          std::upper_bound(first_item, first_item + sequences + 1, item) - first_item - 1;
      const Item at = item_at(args, cut, s, item - first_item[s]);
      if (args.k_pages.size(3) % 16 == 0) {
        attend(args, at, nullptr);
      } else {
        WideKeys wide;
        attend(args, at, &wide);
      }
    }
  });
}

}  // namespace tandem::kernels::cpu
