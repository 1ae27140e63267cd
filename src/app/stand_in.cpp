// SPDX-License-Identifier: Apache-2.0
#include "app/stand_in.h"

#include "core/log.h"

namespace tandem::app {
namespace {

constexpr std::string_view kAnswer =
    " This text stands in for a model: it costs nothing, so that the time is the front end's.";

constexpr size_t kQueue = 65536;

}  // namespace

StandIn::StandIn(const ServeFlags& flags, const LoadedText& text, const std::string& model_name)
    : info_{.model_name = model_name,
            .vocab_size = text.config.vocab,
            .tokenizer_vocab_size = text.tokenizer->vocab_size(),
            .context_tokens_max = text.config.max_position,
            .kv_tokens_max = int64_t{1} << 40,
            .queue_requests_max = static_cast<int32_t>(kQueue)},
      link_(kQueue),
      engine_({.tokens = text.tokenizer->encode(kAnswer, text::Specials::kPlain),
               .tokens_per_s = flags.stand_in_rate},
              link_) {
  log::warn("a stand-in answers instead of the model");
}

void StandIn::start() {
  thread_ = std::thread([this] {
    while (!stopping_) {
      const TimePoint now = clock_.now();
      if (!engine_.step(now)) link_.wait_for_work(engine_.idle_wait(now));
    }
  });
}

void StandIn::stop() {
  stopping_ = true;
  link_.wake();
  if (thread_.joinable()) thread_.join();
}

}  // namespace tandem::app
