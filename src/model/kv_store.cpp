// SPDX-License-Identifier: Apache-2.0
#include "model/kv_store.h"

#include <cstring>

namespace tandem::model {

KvStore::KvStore(KvLayout layout, int32_t page_count)
    : layout_(layout),
      page_count_(page_count),
      bytes_(2 * static_cast<size_t>(layout.layers) * static_cast<size_t>(page_count) *
             layout.page_bytes()) {
  CHECK(layout.layers >= 1 && layout.kv_heads >= 1 && layout.head_dim >= 1 &&
            layout.page_tokens >= 1 && page_count >= 1,
        "{} layers, {} heads of {}, {} pages of {}", layout.layers, layout.kv_heads,
        layout.head_dim, page_count, layout.page_tokens);
}

Tensor KvStore::slab(int32_t layer, KvKind kind) const {
  CHECK(0 <= layer && layer < layout_.layers, "layer {} of {}", layer, layout_.layers);
  const size_t slab_idx = 2 * static_cast<size_t>(layer) + static_cast<size_t>(kind);
  const size_t slab_bytes = static_cast<size_t>(page_count_) * layout_.page_bytes();
  return Tensor::dense(bytes_.data() + slab_idx * slab_bytes, layout_.dtype,
                       {page_count_, layout_.kv_heads, layout_.page_tokens, layout_.head_dim});
}

std::byte* KvStore::page(int32_t layer, KvKind kind, PageId page) const {
  CHECK(0 <= page.value && page.value < page_count_, "page {} of {}", page.value, page_count_);
  return static_cast<std::byte*>(slab(layer, kind).data) +
         static_cast<size_t>(page.value) * layout_.page_bytes();
}

void KvStore::poison(PageId page_id) const {
  for (int32_t layer = 0; layer < layout_.layers; ++layer) {
    for (const KvKind kind : {KvKind::kKey, KvKind::kValue}) {
      std::memset(page(layer, kind, page_id), 0xff, layout_.page_bytes());  // NaN in bf16 and f32
    }
  }
}

}  // namespace tandem::model
