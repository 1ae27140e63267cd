// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <fmt/format.h>

#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "core/log.h"
#include "text/helper_process.h"
#include "text/template_file.h"
#include "text/template_helper.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr auto kStartMax = std::chrono::seconds(10);  // Python and Jinja2 load in 0.1 to 1 s
constexpr size_t kErrorBytesMax = 1024;

// The kinds of answers, as template_helper.py names them.
enum class Kind : char {
  kText = 'T',
  kRaised = 'R',
  kSyntax = 'Y',
  kForbidden = 'S',
  kUndefined = 'U',
  kMemory = 'M',
  kOutput = 'O',
  kNested = 'N',
  kMarkers = 'K',
  kParts = 'P',
};

Error invalid(std::string text) {
  return {ErrorCode::kInvalidArgument, std::move(text), "messages"};
}
Error too_large(std::string text) {
  return {ErrorCode::kTooLarge, std::move(text), "messages"};
}
Error out_of_time() {
  return {ErrorCode::kDeadlineExceeded, "the chat template took longer than it may", "messages"};
}

Error error_of(Kind kind, std::string_view payload) {
  switch (kind) {
    case Kind::kRaised:  // the template's author speaks to the user: "System message must be …"
      return invalid(std::string(payload));
    case Kind::kSyntax:
      return invalid(fmt::format("the chat template has a syntax error in {}", payload));
    case Kind::kForbidden:
      return invalid("the chat template tried what its sandbox forbids");
    case Kind::kUndefined:
      return invalid("the chat template needs a value that the messages do not have");
    case Kind::kMemory:
      return too_large("the chat template needed more memory, or a larger number, than it may");
    case Kind::kOutput:
      return too_large("the rendered prompt is longer than it may be");
    case Kind::kNested:
      return invalid("the chat template or the messages are nested too deeply");
    case Kind::kMarkers:
      return invalid("the messages use too many different private-use characters");
    case Kind::kParts:
      return {ErrorCode::kUnsupported,
              "the chat template puts special tokens together from parts, so they can't be told "
              "from text of users"};
    default:
      return invalid(fmt::format("the chat template failed ({})", payload));
  }
}

// What the end of a helper means for the request that it worked on.
Error error_of(const Exchange& exchange) {
  switch (exchange.end) {
    case Exchange::End::kDeadline:
      return out_of_time();
    case Exchange::End::kTooLarge:
      return error_of(Kind::kOutput, {});
    default:
      if (exchange.signal == SIGXCPU) return out_of_time();
      return invalid("the chat template broke the process that renders it");
  }
}

void append_field(std::string_view field, std::string& out) {
  const auto bytes = static_cast<uint32_t>(field.size());
  out.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  out.append(field);
}

// The rendered text, cut at the markers base, base + 1, …, which stand for specials[0], ….
std::vector<PromptPiece> cut_at_markers(std::string_view text, uint32_t base,
                                        const std::vector<std::string>& specials) {
  std::vector<PromptPiece> pieces;
  const uint8_t* begin = as_bytes(text.data());
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    // Markers are four bytes long and begin with F3 (planes 15 and, in part, 14).
    const void* found = std::memchr(begin + at, 0xF3, text.size() - at);
    if (found == nullptr) break;
    at = static_cast<size_t>(static_cast<const uint8_t*>(found) - begin);
    const CodePoint c = read_valid(begin + at);
    if (c.value >= base && c.value - base < specials.size()) {
      if (at > done)
        pieces.push_back({std::string(text.substr(done, at - done)), Specials::kPlain});
      pieces.push_back({specials[c.value - base], Specials::kParse});
      done = at + c.bytes;
    }
    at += c.bytes;
  }
  if (done < text.size()) pieces.push_back({std::string(text.substr(done)), Specials::kPlain});
  return pieces;
}

// The first frame for a helper; template_helper.py describes it.
std::string settings_frame(const TemplateFile& file, const std::vector<std::string>& specials,
                           const TemplateLimits& limits) {
  const auto cpu_s = std::chrono::ceil<std::chrono::seconds>(limits.cpu_max).count();
  std::string frame;
  append_field(std::to_string(limits.memory_bytes_max), frame);
  append_field(std::to_string(cpu_s), frame);
  append_field(std::to_string(limits.output_bytes_max), frame);
  append_field(file.source, frame);
  for (const std::string& special : specials) append_field("s" + special, frame);
  for (const auto& [name, value] : file.variables) append_field("v" + name + "=" + value, frame);
  return frame;
}

}  // namespace

struct ChatTemplate::State {
  std::string settings;  // the frame that a fresh helper gets
  std::vector<std::string> specials;
  TemplateLimits limits;

  std::mutex mutex;
  std::condition_variable returned;
  std::vector<std::optional<HelperProcess>> idle;  // nullopt: one that has to be started first

  Result<HelperProcess> start_helper() const;
  // Waits until a helper is free.
  std::optional<std::optional<HelperProcess>> take(SteadyTime deadline);
  void give_back(std::optional<HelperProcess> helper);
};

Result<HelperProcess> ChatTemplate::State::start_helper() const {
  // -I: no environment, no user packages; -B: no bytecode files.
  HelperProcess helper =
      TRY(HelperProcess::start({"/usr/bin/python3", "-I", "-B", "-c", kTemplateHelper}));
  const SteadyTime deadline = std::chrono::steady_clock::now() + kStartMax + limits.wall_max;
  const Exchange exchange = helper.exchange(settings, kErrorBytesMax, deadline);
  if (exchange.end == Exchange::End::kDied && exchange.signal == 0) {
    return Error{ErrorCode::kUnavailable,
                 "the chat template helper ended at its start: it needs /usr/bin/python3 with "
                 "python3-jinja2, and libseccomp2"};
  }
  if (exchange.end != Exchange::End::kAnswer) return error_of(exchange);
  if (exchange.answer.empty()) return Error{ErrorCode::kInternal, "an empty answer of the helper"};
  const auto kind = static_cast<Kind>(exchange.answer[0]);
  if (kind != Kind::kText) return error_of(kind, std::string_view(exchange.answer).substr(1));
  return helper;
}

std::optional<std::optional<HelperProcess>> ChatTemplate::State::take(SteadyTime deadline) {
  std::unique_lock lock(mutex);
  if (!returned.wait_until(lock, deadline, [this] { return !idle.empty(); })) return std::nullopt;
  std::optional<HelperProcess> helper = std::move(idle.back());
  idle.pop_back();
  return helper;
}

void ChatTemplate::State::give_back(std::optional<HelperProcess> helper) {
  {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(helper));
  }
  returned.notify_one();
}

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Result<ChatTemplate> ChatTemplate::make(const TemplateFile& file,
                                        std::vector<std::string> special_strings,
                                        TemplateLimits limits) {
  CHECK(limits.helpers > 0);
  auto state = std::make_unique<State>();
  state->settings = settings_frame(file, special_strings, limits);
  state->specials = std::move(special_strings);
  state->limits = limits;
  for (size_t i = 0; i < limits.helpers; ++i) state->idle.emplace_back(TRY(state->start_helper()));
  return ChatTemplate(std::move(state));
}

Result<ChatTemplate> ChatTemplate::open(const std::filesystem::path& model_dir,
                                        std::vector<std::string> special_strings,
                                        TemplateLimits limits) {
  const TemplateFile file = TRY(read_template_file(model_dir));
  auto made = make(file, std::move(special_strings), limits);
  if (made) return made;
  Error error = std::move(made).error();
  error.text = fmt::format("{}: {}", file.path.string(), error.text);
  error.param = file.path.string();
  return error;
}

Result<ChatTemplate> ChatTemplate::from_text(std::string template_text,
                                             std::vector<std::string> special_strings,
                                             TemplateLimits limits) {
  return make({.source = std::move(template_text)}, std::move(special_strings), limits);
}

Result<std::vector<PromptPiece>> ChatTemplate::render(std::string_view context_json) const {
  if (context_json.size() > state_->limits.context_bytes_max) {
    return too_large(fmt::format("the messages have {} bytes, more than {}", context_json.size(),
                                 state_->limits.context_bytes_max));
  }
  const SteadyTime deadline = std::chrono::steady_clock::now() + state_->limits.wall_max;
  auto taken = state_->take(deadline);
  if (!taken) {
    return Error{ErrorCode::kResourceExhausted, "all chat template helpers are busy", {}};
  }
  std::optional<HelperProcess> helper = std::move(*taken);
  if (!helper) {
    auto started = state_->start_helper();
    if (!started) {
      state_->give_back(std::nullopt);
      log::error("the chat template helper can't be restarted: {}", started.error().text);
      return Error{ErrorCode::kUnavailable, "the chat template helper can't be restarted", {}};
    }
    helper = std::move(started).value();
  }
  // A fresh helper gets the whole time: its start is not the request's fault.
  const SteadyTime render_deadline =
      taken->has_value() ? deadline : std::chrono::steady_clock::now() + state_->limits.wall_max;
  const size_t answer_bytes_max = state_->limits.output_bytes_max + kErrorBytesMax;
  const Exchange exchange = helper->exchange(context_json, answer_bytes_max, render_deadline);
  if (exchange.end != Exchange::End::kAnswer) {
    log::warn("a chat template helper was ended and will be replaced: {}", error_of(exchange).text);
    helper.reset();
  }
  state_->give_back(std::move(helper));
  if (exchange.end != Exchange::End::kAnswer) return error_of(exchange);
  if (exchange.answer.empty()) return Error{ErrorCode::kInternal, "an empty answer of the helper"};
  const auto kind = static_cast<Kind>(exchange.answer[0]);
  const std::string_view payload = std::string_view(exchange.answer).substr(1);
  if (kind != Kind::kText) return error_of(kind, payload);
  uint32_t base = 0;
  CHECK(payload.size() >= sizeof base, "an answer of {} bytes", payload.size());
  std::memcpy(&base, payload.data(), sizeof base);
  return cut_at_markers(payload.substr(sizeof base), base, state_->specials);
}

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer,
                                   const std::vector<PromptPiece>& pieces) {
  std::vector<int32_t> ids;
  for (const PromptPiece& piece : pieces) {
    const std::vector<int32_t> more = tokenizer.encode(piece.text, piece.specials);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

}  // namespace tandem::text
