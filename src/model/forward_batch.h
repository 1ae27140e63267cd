// SPDX-License-Identifier: Apache-2.0
// A Batch as index tensors for the kernels, checked once per pass. forward.cpp calls it.
#pragma once

#include "core/exec.h"
#include "kernels/attention.h"
#include "model/forward.h"

namespace tandem::model {

// Which rows attend to what; the fields of kernels::AttentionArgs.
struct AttentionIndex {
  Tensor seq_rows, seq_positions, seq_pages, page_ids;  // i32 [S+1], [S], [S+1], [.]
};

struct BatchIndex {
  Tensor positions, slots;  // i32 [T]: where a row's K and V go
  AttentionIndex all;       // every row
  AttentionIndex wanted;    // the logit rows alone, packed together
};

// Memory is taken from exec.scratch. Ends the process where the batch breaks its contract.
[[nodiscard]] BatchIndex index_batch(const Exec& exec, const Batch& batch, const KvLayout& layout);
[[nodiscard]] size_t index_batch_bytes(const ForwardLimits& limits);

// out[i,:] = x[rows[i],:], bf16.
void gather_rows(const Exec& exec, Tensor x, std::span<const int32_t> rows, Tensor out);

}  // namespace tandem::model
