// SPDX-License-Identifier: Apache-2.0
#include "model/config_rope.h"

#include <fmt/format.h>

#include <cmath>

namespace tandem::model {
namespace {

constexpr double kThetaDefault = 10000.0;
constexpr double kThetaMin = 1.0001;  // at 1 every dimension would turn at the same speed
constexpr double kThetaMax = 1e12;

Result<void> read_yarn(const FieldReader& scaling, int32_t max_position, RopeConfig& rope) {
  if (TRY(scaling.boolean_or("truncate", true)) == false) {
    return scaling.error(ErrorCode::kUnsupported, "truncate", "is false, which is not supported");
  }
  for (const char* field : {"mscale", "mscale_all_dim"}) {
    if (scaling.has(field)) {
      return scaling.error(ErrorCode::kUnsupported, field, "is not supported");
    }
  }
  rope.yarn = true;
  rope.yarn_factor = TRY(scaling.number("factor", 1.0, 1e6));
  rope.yarn_original_max =
      TRY(scaling.number_or("original_max_position_embeddings", 1.0, 1e9, max_position));
  rope.yarn_beta_fast = TRY(scaling.number_or("beta_fast", 1e-3, 1e6, rope.yarn_beta_fast));
  rope.yarn_beta_slow = TRY(scaling.number_or("beta_slow", 1e-3, 1e6, rope.yarn_beta_slow));
  if (rope.yarn_beta_fast <= rope.yarn_beta_slow) {
    return scaling.invalid("beta_fast", "is not above beta_slow");
  }
  rope.yarn_attention_factor = TRY(scaling.number_or("attention_factor", 1e-3, 1e3, 0.0));
  return {};
}

}  // namespace

Result<RopeConfig> read_rope(const FieldReader& text, int32_t head_dim, int32_t max_position) {
  RopeConfig rope;
  const auto parameters = TRY(text.object("rope_parameters"));
  const auto scaling = parameters ? parameters : TRY(text.object("rope_scaling"));
  const FieldReader& source = parameters ? *parameters : text;

  const double theta_beside =
      TRY(text.number_or("rope_theta", kThetaMin, kThetaMax, kThetaDefault));
  rope.theta = TRY(source.number_or("rope_theta", kThetaMin, kThetaMax, theta_beside));
  const double partial_beside = TRY(text.number_or("partial_rotary_factor", 0.0, 1.0, 1.0));
  rope.partial_factor = TRY(source.number_or("partial_rotary_factor", 0.0, 1.0, partial_beside));
  const double rotary_dims = head_dim * rope.partial_factor;
  if (rotary_dims < 2.0 || std::fmod(rotary_dims, 2.0) != 0.0) {
    return source.invalid("partial_rotary_factor",
                          fmt::format("is {}: {} of {} dimensions can't rotate in pairs",
                                      rope.partial_factor, rotary_dims, head_dim));
  }
  if (!scaling) return rope;

  // "type" is the older spelling of "rope_type".
  const std::string older = TRY(scaling->text_or("type", "default"));
  const std::string type = TRY(scaling->text_or("rope_type", older));
  if (type == "yarn") {
    TRY(read_yarn(*scaling, max_position, rope));
  } else if (type != "default") {
    return scaling->error(ErrorCode::kUnsupported, "rope_type",
                          fmt::format("is '{}'; known are default and yarn", type));
  }
  return rope;
}

}  // namespace tandem::model
