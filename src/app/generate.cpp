// SPDX-License-Identifier: Apache-2.0
// tandem generate: one prompt, the answer streamed to stdout.
#include <fmt/format.h>

#include <condition_variable>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/engine_host.h"
#include "core/log.h"
#include "text/detokenizer.h"

namespace tandem::app {
namespace {

Result<std::vector<int32_t>> make_prompt(const GenerateFlags& flags, const LoadedText& text) {
  if (flags.raw || !text.chat_template) {
    return text.tokenizer->encode(flags.prompt, text::Specials::kParse);
  }
  const nlohmann::json context = {{"messages", {{{"role", "user"}, {"content", flags.prompt}}}},
                                  {"add_generation_prompt", true}};
  const std::string json = context.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text::encode_prompt(*text.tokenizer, TRY(text.chat_template->render(json)));
}

SamplingParams make_sampling(const GenerateFlags& flags,
                             const model::GenerationDefaults& defaults) {
  SamplingParams sampling;
  const auto pick = [](double flag, std::optional<double> preset, float fallback) {
    return flag >= 0 ? static_cast<float>(flag) : static_cast<float>(preset.value_or(fallback));
  };
  sampling.temperature = pick(flags.temperature, defaults.temperature, 1.0F);
  if (flags.temperature < 0 && !defaults.do_sample) sampling.temperature = 0;
  sampling.top_p = pick(flags.top_p, defaults.top_p, 1.0F);
  sampling.top_k = flags.top_k >= 0 ? flags.top_k : defaults.top_k.value_or(0);
  sampling.min_p = static_cast<float>(defaults.min_p.value_or(0.0));
  sampling.repetition_penalty = static_cast<float>(defaults.repetition_penalty.value_or(1.0));
  sampling.seed = flags.seed_given ? flags.seed : os_random_u64();
  return sampling;
}

Result<engine::Submit> make_submit(const GenerateFlags& flags, const LoadedText& text,
                                   const EngineHost& host) {
  engine::Submit submit;
  submit.id = RequestId{1};
  submit.prompt = TRY(make_prompt(flags, text));
  const int64_t room =
      std::min<int64_t>(host.info().context_tokens_max, host.info().kv_tokens_max) -
      static_cast<int64_t>(submit.prompt.size());
  if (submit.prompt.empty() || room < 1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the prompt has {} tokens; it needs 1 to {}", submit.prompt.size(),
                             room + static_cast<int64_t>(submit.prompt.size()) - 1),
                 "prompt"};
  }
  submit.sampling = make_sampling(flags, text.defaults);
  submit.max_tokens = static_cast<int32_t>(std::min<int64_t>(flags.max_tokens, room));
  submit.stop_ids = text.eos_ids;
  submit.submitted = host.clock().now();
  return submit;
}

// Prints tokens as they come; returns the error that ended the request, if one did.
class Printer {
 public:
  Printer(engine::Link& link, const text::Tokenizer& tokenizer)
      : link_(link), detokenizer_(tokenizer, true) {
    link_.on_events([this] {
      {
        const std::lock_guard lock(mutex_);
        rung_ = true;
      }
      ready_.notify_one();
    });
  }

  Result<void> run(const std::vector<int32_t>& stop_ids) {
    std::vector<engine::TokenEvent> events;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [this] { return rung_; });
        rung_ = false;
      }
      events.clear();
      link_.take_events(events);
      for (const engine::TokenEvent& event : events) {
        if (event.has_token && !is_stop(event, stop_ids)) print(event.token.token);
        if (event.finish == engine::FinishReason::kNone) continue;
        finish();
        if (event.error) return *event.error;
        return {};
      }
    }
  }

 private:
  static bool is_stop(const engine::TokenEvent& event, const std::vector<int32_t>& stop_ids) {
    return event.finish == engine::FinishReason::kStop &&
           std::find(stop_ids.begin(), stop_ids.end(), event.token.token) != stop_ids.end();
  }
  void print(int32_t token) {
    std::string text;
    detokenizer_.push(token, text);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  void finish() {
    std::string text;
    detokenizer_.finish(text);
    fmt::print("{}\n", text);
  }

  engine::Link& link_;
  text::Detokenizer detokenizer_;
  std::mutex mutex_;
  std::condition_variable ready_;
  bool rung_ = false;
};

Result<void> generate(const GenerateFlags& flags) {
  const LoadedText text = TRY(load_text(flags.engine.model_dir));
  const auto host = TRY(
      EngineHost::create({.flags = flags.engine, .text = text, .model_name = text.config.name}));
  engine::Submit submit = TRY(make_submit(flags, text, *host));
  const std::vector<int32_t> stop_ids = submit.stop_ids;
  Printer printer(host->link(), *text.tokenizer);
  host->start();
  CHECK(host->link().try_submit(submit));
  const Result<void> ended = printer.run(stop_ids);
  host->stop();
  return ended;
}

}  // namespace

int run_generate(const GenerateFlags& flags) {
  const Result<void> done = generate(flags);
  return done.ok() ? 0 : fail_start(done.error());
}

}  // namespace tandem::app
