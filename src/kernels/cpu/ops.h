// SPDX-License-Identifier: Apache-2.0
// The CPU side of every op. Called by kernels/<op>.cpp alone, which has checked the arguments.
#pragma once

#include "core/exec.h"

namespace tandem::kernels {

struct AttentionArgs;
struct EmbeddingArgs;
struct LinearArgs;
struct LinearWeight;
struct MoeArgs;
struct MoePackArgs;
struct MoeWeight;
struct QkNormRopeKvWriteArgs;
struct RmsNormArgs;
struct RouterArgs;
struct SiluMulArgs;

}  // namespace tandem::kernels

namespace tandem::kernels::cpu {

void attention(const Exec& exec, const AttentionArgs& args);
void embedding(const Exec& exec, const EmbeddingArgs& args);
void linear(const Exec& exec, const LinearArgs& args);
void linear_pack(const Exec& exec, Tensor w, const LinearWeight& packed);
void moe(const Exec& exec, const MoeArgs& args);
void moe_pack(const Exec& exec, const MoePackArgs& args, const MoeWeight& packed);
void qk_norm_rope_kv_write(const Exec& exec, const QkNormRopeKvWriteArgs& args);
void rms_norm(const Exec& exec, const RmsNormArgs& args);
void router(const Exec& exec, const RouterArgs& args);
void silu_mul(const Exec& exec, const SiluMulArgs& args);

}  // namespace tandem::kernels::cpu
