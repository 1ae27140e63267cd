// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes as a config.json. A config that is accepted must keep the promises that the
// loader and the forward pass build on.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = tandem::model::parse_config(text, "fuzz.json");
  if (!parsed.ok()) {
    CHECK(parsed.error().text.find("fuzz.json") != std::string::npos, "{}", parsed.error().text);
    return 0;
  }
  const tandem::model::ModelConfig& c = *parsed;
  CHECK(c.hidden > 0 && c.layers > 0 && c.vocab > 0 && c.max_position > 0);
  CHECK(c.q_heads > 0 && c.kv_heads > 0 && c.q_heads % c.kv_heads == 0);
  CHECK(c.head_dim > 0 && c.head_dim % 2 == 0);
  CHECK(c.layer_is_moe.size() == static_cast<size_t>(c.layers));
  for (const bool moe : c.layer_is_moe) {
    CHECK(moe ? c.experts >= c.experts_per_token && c.experts_per_token > 0 &&
                    c.moe_intermediate > 0
              : c.intermediate > 0);
  }
  for (const int32_t id : c.eos_ids) CHECK(id >= 0 && id < c.vocab);
  CHECK(std::isfinite(c.rope.theta) && c.rope.theta > 1);
  CHECK(c.rope.partial_factor > 0 && c.rope.partial_factor <= 1);
  CHECK(c.rms_norm_eps > 0);
  CHECK(c.parameter_count() > 0 && c.kv_bytes_per_token() > 0);
  return 0;
}
