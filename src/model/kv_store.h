// SPDX-License-Identifier: Apache-2.0
// The bytes of a KV cache: per layer and kind one slab of pages, each page
// [kv_head][token][head_dim] (HND), so that a head's tokens are contiguous and a cache sharded by
// heads can be cut without a copy. kv/ decides which page belongs to whom; model/forward writes and
// reads; transfer/ moves whole pages or head slabs by (base, stride, index).
#pragma once

#include <cstdint>

#include "core/ids.h"
#include "core/tensor.h"

namespace tandem::model {

struct KvLayout {
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t page_tokens = 64;
  DType dtype = DType::kBf16;

  [[nodiscard]] size_t head_bytes() const {  // one head's tokens of one page of K or of V
    return static_cast<size_t>(page_tokens) * static_cast<size_t>(head_dim) * dtype_bytes(dtype);
  }
  [[nodiscard]] size_t page_bytes() const { return static_cast<size_t>(kv_heads) * head_bytes(); }
  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

enum class KvKind : uint8_t { kKey = 0, kValue = 1 };

class KvStore {
 public:
  KvStore(KvLayout layout, int32_t page_count);

  [[nodiscard]] const KvLayout& layout() const { return layout_; }
  [[nodiscard]] int32_t page_count() const { return page_count_; }
  // bf16 [page_count, kv_heads, page_tokens, head_dim] of one layer.
  [[nodiscard]] Tensor slab(int32_t layer, KvKind kind) const;
  [[nodiscard]] std::byte* page(int32_t layer, KvKind kind, PageId page) const;
  // Fills a page with a pattern that no computation survives (NaN), so that a stale read shows. For
  // tests and frees.
  void poison(PageId page) const;

 private:
  KvLayout layout_;
  int32_t page_count_;
  Buffer bytes_;
};

}  // namespace tandem::model
