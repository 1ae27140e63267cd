// SPDX-License-Identifier: Apache-2.0
#include "engine/handoff.h"

namespace tandem::engine {

Result<KvExport> export_kv(const model::KvStore& kv, transfer::Transport& transport) {
  KvExport exported{.layout = kv.layout()};
  for (int32_t layer = 0; layer < kv.layout().layers; ++layer) {
    for (const auto kind : {model::KvKind::kKey, model::KvKind::kValue}) {
      const Tensor slab = kv.slab(layer, kind);
      const std::span bytes(static_cast<std::byte*>(slab.data), slab.bytes());
      exported.slabs.push_back(TRY(transport.register_memory(bytes)));
    }
  }
  return exported;
}

std::vector<transfer::Digest> layer_digests(const model::KvLayout& layout,
                                            std::span<const transfer::Digest> parts) {
  const auto layers = static_cast<size_t>(layout.layers);
  const size_t per_layer = parts.size() / layers;
  CHECK(per_layer * layers == parts.size(), "{} parts of {} layers", parts.size(), layers);
  std::vector<transfer::Digest> digests;
  digests.reserve(layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    digests.push_back(transfer::digest_of(parts.subspan(layer * per_layer, per_layer)));
  }
  return digests;
}

std::span<const std::byte> page_bytes(const model::KvStore& kv, int32_t slab, PageId page) {
  const std::byte* bytes = kv.page(slab / 2, static_cast<model::KvKind>(slab % 2), page);
  return {bytes, kv.layout().page_bytes()};
}

}  // namespace tandem::engine
