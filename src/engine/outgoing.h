// SPDX-License-Identifier: Apache-2.0
// The sending half of one handoff: which pages of which layer are computed, pushed and done. The
// prefill worker owns one per prompt on its way to a decoder.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/handoff.h"

namespace tandem::engine {

class Outgoing {
 public:
  struct Route {  // of a pair of workers
    const model::KvStore& kv;
    const KvExport& source;
    const KvExport& destination;
    transfer::Transport& transport;
  };

  // `pages`: of the whole prompt, at the source.
  Outgoing(HandoffTarget target, const model::KvLayout& layout, std::vector<PageId> pages,
           int32_t prompt_tokens);

  [[nodiscard]] transfer::HandoffKey key() const { return target_.key; }

  // Positions [0, tokens) of this layer stand in the source. Only whole pages become ready, but for
  // the prompt's last one.
  void layer_ready(int32_t layer, int32_t tokens);
  // Digests and submits what is ready, as far as the transport has room. An error: the target can't
  // be written (an index out of range).
  Result<void> push(const Route& route, TimePoint deadline);
  void completed(transfer::Outcome outcome);

  [[nodiscard]] bool all_pushed() const { return pushed_parts_ == digests_.size(); }
  [[nodiscard]] bool terminal() const { return open_ == 0; }  // nothing that was pushed moves now
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] uint32_t parts() const { return static_cast<uint32_t>(digests_.size()); }
  [[nodiscard]] std::vector<transfer::Digest> layer_digests() const;

 private:
  // False: no room.
  Result<bool> push_slab(const Route& route, int32_t slab, int32_t ready, TimePoint deadline);

  HandoffTarget target_;
  model::KvLayout layout_;
  std::vector<PageId> pages_;  // from first_page on
  int32_t prompt_tokens_;
  std::vector<int32_t> ready_;             // [layers] pages, counted from first_page
  std::vector<int32_t> pushed_;            // [layers * 2]
  std::vector<transfer::Digest> digests_;  // [parts]
  size_t pushed_parts_ = 0;
  int32_t open_ = 0;
  bool failed_ = false;
};

}  // namespace tandem::engine
