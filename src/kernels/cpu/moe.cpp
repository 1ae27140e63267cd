// SPDX-License-Identifier: Apache-2.0
#include "kernels/moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/moe_layout.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/silu.h"

namespace tandem::kernels::cpu {
namespace {

// One call's working memory. `wide` holds the gathered inputs [slots,H], later the down products.
struct Work {
  MoeLayout layout;
  int64_t picks = 0, slots = 0;
  float* wide = nullptr;
  float* middle = nullptr;  // [slots, intermediate_padded]
  MoeRowBlock* blocks = nullptr;
  int64_t block_count = 0, rows_max = 0;
};

Work plan(const Exec& exec, const MoeArgs& args) {
  const MoeWeight& w = args.weight;
  Work work{.layout = {.hidden = w.hidden, .intermediate = w.intermediate},
            .picks = args.weights.size(1),
            .slots = args.slots.size(0)};
  work.wide = exec.scratch->take<float>(work.slots * w.hidden);
  work.middle = exec.scratch->take<float>(work.slots * work.layout.intermediate_padded());
  work.blocks = exec.scratch->take<MoeRowBlock>(work.slots / kBlockRows + w.experts);
  const auto* begin = args.expert_begin.as<int32_t>();
  CHECK(begin[0] == 0 && begin[w.experts] == work.slots, "{} slots of {}", begin[w.experts],
        work.slots);
  for (int32_t e = 0; e < w.experts; ++e) {
    for (int32_t slot = begin[e]; slot < begin[e + 1]; slot += kBlockRows) {
      const int32_t rows = std::min<int32_t>(kBlockRows, begin[e + 1] - slot);
      work.blocks[work.block_count++] = {.expert = e, .slot = slot, .rows = rows};
      work.rows_max = std::max<int64_t>(work.rows_max, rows);
    }
  }
  return work;
}

void gather(const Exec& exec, const MoeArgs& args, const Work& work) {
  const int64_t hidden = work.layout.hidden;
  const auto* slot_picks = args.slot_picks.as<int32_t>();
  exec.parallel_for(work.slots, std::max<int64_t>(1, 65536 / hidden),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t s = begin; s < end; ++s) {
                        const int64_t t = slot_picks[s] / work.picks;
                        expand_row(args.x.row<bf16>(t), hidden, work.wide + s * hidden);
                      }
                    });
}

// Runs body(row block, first panel, panels) over all blocks and all `panels` of the weight.
template <typename Body>
void for_each_block(const Exec& exec, const Work& work, int64_t panels, int64_t k,
                    const Body& body) {
  const int64_t column_blocks = (panels + kPanelsMax - 1) / kPanelsMax;
  const int64_t grain = gemm_grain(work.rows_max * kBlockColumns * k);
  exec.parallel_for(work.block_count * column_blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t panel = i % column_blocks * kPanelsMax;
      body(work.blocks[i / column_blocks], panel, std::min<int64_t>(kPanelsMax, panels - panel));
    }
  });
}

void gate_up(const Exec& exec, const MoeArgs& args, const Work& work) {
  const int64_t hidden = work.layout.hidden, width = work.layout.intermediate_padded();
  const auto* weight = static_cast<const bf16*>(args.weight.gate_up);
  const auto body = [&](const MoeRowBlock& block, int64_t panel, int64_t panels) {
    alignas(64) float c[kBlockRows * kBlockColumns];
    gemm_block({.x = work.wide + block.slot * hidden,
                .x_stride = hidden,
                .rows = block.rows,
                .k = hidden,
                .panels = weight + block.expert * work.layout.gate_up_size() +
                          panel * kPanelColumns * hidden,
                .panel_count = static_cast<int>(panels),
                .c = c});
    for (int64_t r = 0; r < block.rows; ++r) {
      float* out = work.middle + (block.slot + r) * width + panel / 2 * kPanelColumns;
      for (int64_t p = 0; p < panels; p += 2) {
        const float* gate = c + r * kBlockColumns + p * kPanelColumns;
        silu_mul_panel(gate, gate + kPanelColumns, out + p / 2 * kPanelColumns);
      }
    }
  };
  for_each_block(exec, work, 2 * gemm_panels(work.layout.intermediate), hidden, body);
}

void down(const Exec& exec, const MoeArgs& args, const Work& work) {
  const int64_t hidden = work.layout.hidden, k = work.layout.intermediate;
  const auto* weight = static_cast<const bf16*>(args.weight.down);
  const auto body = [&](const MoeRowBlock& block, int64_t panel, int64_t panels) {
    alignas(64) float c[kBlockRows * kBlockColumns];
    const int64_t width = work.layout.intermediate_padded(), column = panel * kPanelColumns;
    gemm_block({.x = work.middle + block.slot * width,
                .x_stride = width,
                .rows = block.rows,
                .k = k,
                .panels = weight + block.expert * work.layout.down_size() + column * k,
                .panel_count = static_cast<int>(panels),
                .c = c});
    const int64_t columns = std::min(panels * kPanelColumns, hidden - column);
    for (int64_t r = 0; r < block.rows; ++r) {
      std::memcpy(work.wide + (block.slot + r) * hidden + column, c + r * kBlockColumns,
                  static_cast<size_t>(columns) * sizeof(float));
    }
  };
  for_each_block(exec, work, gemm_panels(hidden), k, body);
}

// The order over k is the router's, the same for every batch.
void combine(const Exec& exec, const MoeArgs& args, const Work& work) {
  const int64_t hidden = work.layout.hidden;
  const auto* slots = args.slots.as<int32_t>();
  exec.parallel_for(args.x.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* weights = args.weights.row<float>(t);
      for (int64_t column = 0; column < hidden; column += kBlockColumns) {
        const int64_t columns = std::min(kBlockColumns, hidden - column);
        float sum[kBlockColumns] = {};
        for (int64_t k = 0; k < work.picks; ++k) {
          const float* product = work.wide + slots[t * work.picks + k] * hidden + column;
          for (int64_t i = 0; i < columns; ++i) sum[i] += weights[k] * product[i];
        }
        round_row(sum, columns, args.y.row<bf16>(t) + column);
      }
    }
  });
}

}  // namespace

void moe_pack(const Exec& exec, const MoePackArgs& args, const MoeWeight& packed) {
  const MoeLayout layout{.hidden = packed.hidden, .intermediate = packed.intermediate};
  exec.parallel_for(packed.experts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      auto* gate_up = static_cast<bf16*>(packed.gate_up) + e * layout.gate_up_size();
      const int64_t panel = kPanelColumns * packed.hidden;
      gemm_pack({.w = args.gate.row<bf16>(e),
                 .row_stride = packed.hidden,
                 .n = packed.intermediate,
                 .k = packed.hidden,
                 .panels = gate_up,
                 .panel_stride = 2 * panel});
      gemm_pack({.w = args.up.row<bf16>(e),
                 .row_stride = packed.hidden,
                 .n = packed.intermediate,
                 .k = packed.hidden,
                 .panels = gate_up + panel,
                 .panel_stride = 2 * panel});
      gemm_pack({.w = args.down.row<bf16>(e),
                 .row_stride = packed.intermediate,
                 .n = packed.hidden,
                 .k = packed.intermediate,
                 .panels = static_cast<bf16*>(packed.down) + e * layout.down_size(),
                 .panel_stride = kPanelColumns * packed.intermediate});
    }
  });
}

void moe(const Exec& exec, const MoeArgs& args) {
  const ScratchScope scope(*exec.scratch);
  CHECK(args.weights.is_dense(), "weights {} have gaps", args.weights.describe());
  const Work work = plan(exec, args);
  gather(exec, args, work);
  gate_up(exec, args, work);
  down(exec, args, work);
  combine(exec, args, work);
}

}  // namespace tandem::kernels::cpu
