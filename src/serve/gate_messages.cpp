// SPDX-License-Identifier: Apache-2.0
#include "serve/gate_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>
#include <string_view>

#include "serve/json_writer.h"

namespace tandem::serve {
namespace {

constexpr size_t kAnyBytes = std::numeric_limits<size_t>::max();

// Names of tools and authors: what OpenAI allows, so nothing that a template could take for markup.
Result<std::string_view> read_name(JsonValue value, const std::string& path, size_t bytes_max) {
  const std::string_view name = TRY(read_text(value, path, bytes_max));
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
  if (name.empty() || !plain) {
    return invalid_field(
        path, fmt::format("{} must be 1 to {} letters, digits, '_' or '-'", path, bytes_max));
  }
  return name;
}

Result<std::string> read_content_part(JsonValue value, const std::string& path) {
  ObjectReader part = TRY(ObjectReader::of(value, path));
  const auto type = TRY(part.text("type", kAnyBytes));
  if (!type || *type != "text") {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}.type must be \"text\": this server takes text only and never "
                             "fetches a URL",
                             path),
                 path + ".type"};
  }
  const auto text = TRY(part.text("text", kAnyBytes));
  if (!text) return invalid_field(path + ".text", path + ".text is missing");
  return std::string(*text);
}

// Text of `content`: a string or a list of text parts.
Result<std::string> read_content(JsonValue value, const std::string& path,
                                 const GateLimits& limits) {
  std::string_view text;
  if (!value.get(text)) return std::string(text);
  JsonArray parts;
  if (value.get(parts)) {
    return invalid_field(path, path + " must be a string or a list of text parts");
  }
  if (parts.size() > limits.content_parts_max) {
    return invalid_field(path,
                         fmt::format("{} has more than {} parts", path, limits.content_parts_max));
  }
  std::string joined;
  size_t index = 0;
  for (const JsonValue part : parts) {
    joined += TRY(read_content_part(part, item_path(path, index++)));
  }
  return joined;
}

Result<void> append_tool_call(JsonValue value, const std::string& path, const GateLimits& limits,
                              std::string& out) {
  ObjectReader call = TRY(ObjectReader::of(value, path));
  const auto type = TRY(call.text("type", kAnyBytes));
  if (type && *type != "function") {
    return invalid_field(path + ".type", path + ".type must be \"function\"");
  }
  const auto id = TRY(call.text("id", limits.name_bytes_max));
  auto function = TRY(call.object("function"));
  if (!function) return invalid_field(path + ".function", path + ".function is missing");
  const auto name_value = function->value("name");
  const std::string name_path = function->path_of("name");
  if (!name_value) return invalid_field(name_path, name_path + " is missing");
  const auto name = TRY(read_name(*name_value, name_path, limits.name_bytes_max));
  const auto arguments = TRY(function->text("arguments", kAnyBytes));
  out += R"({"type":"function","function":{"name":)";
  append_json_string(out, name);
  out += R"(,"arguments":)";
  append_json_string(out, arguments.value_or("{}"));
  out += "}";
  if (id) {
    out += R"(,"id":)";
    append_json_string(out, *id);
  }
  out += "}";
  return {};
}

Result<bool> append_tool_calls(ObjectReader& message, const GateLimits& limits, std::string& out) {
  const auto calls = TRY(message.array("tool_calls", limits.tools_max));
  if (!calls || calls->size() == 0) return false;
  out += R"(,"tool_calls":[)";
  size_t index = 0;
  for (const JsonValue call : *calls) {
    if (index > 0) out.push_back(',');
    TRY(append_tool_call(call, item_path(message.path_of("tool_calls"), index++), limits, out));
  }
  out.push_back(']');
  return true;
}

Result<std::string_view> read_role(ObjectReader& message) {
  const auto role = TRY(message.text("role", kAnyBytes));
  const std::string path = message.path_of("role");
  if (!role) return invalid_field(path, path + " is missing");
  if (*role == "developer") return std::string_view("system");  // OpenAI's newer word for it
  for (const std::string_view known : {"system", "user", "assistant", "tool"}) {
    if (*role == known) return known;
  }
  return invalid_field(path, path + " must be system, developer, user, assistant or tool");
}

Result<void> append_message(JsonValue value, const std::string& path, const GateLimits& limits,
                            std::string& out) {
  ObjectReader message = TRY(ObjectReader::of(value, path));
  const std::string_view role = TRY(read_role(message));
  out += R"({"role":")";
  out += role;
  out.push_back('"');
  if (const auto name = message.value("name")) {
    out += R"(,"name":)";
    append_json_string(out, TRY(read_name(*name, message.path_of("name"), limits.name_bytes_max)));
  }
  bool has_calls = false;
  if (role == "assistant") {
    has_calls = TRY(append_tool_calls(message, limits, out));
    if (const auto reasoning = TRY(message.text("reasoning_content", kAnyBytes))) {
      out += R"(,"reasoning_content":)";
      append_json_string(out, *reasoning);
    }
  }
  if (role == "tool") {
    if (const auto id = TRY(message.text("tool_call_id", limits.name_bytes_max))) {
      out += R"(,"tool_call_id":)";
      append_json_string(out, *id);
    }
  }
  const auto content = message.value("content");
  const std::string content_path = message.path_of("content");
  if (!content && !has_calls) return invalid_field(content_path, content_path + " is missing");
  const std::string text =
      content ? TRY(read_content(*content, content_path, limits)) : std::string();
  out += R"(,"content":)";
  append_json_string(out, text);
  out.push_back('}');
  return {};
}

Result<void> append_messages(ObjectReader& body, const GateLimits& limits, std::string& out) {
  const auto messages = TRY(body.array("messages", limits.messages_max));
  if (!messages || messages->size() == 0) {
    return invalid_field("messages", "messages must hold at least one message");
  }
  out += R"("messages":[)";
  size_t index = 0;
  for (const JsonValue message : *messages) {
    if (index > 0) out.push_back(',');
    TRY(append_message(message, item_path("messages", index++), limits, out));
  }
  out.push_back(']');
  return {};
}

Result<std::string_view> read_tool_name(JsonValue value, const std::string& path,
                                        const GateLimits& limits) {
  ObjectReader tool = TRY(ObjectReader::of(value, path));
  const auto type = TRY(tool.text("type", kAnyBytes));
  if (!type || *type != "function") {
    return invalid_field(path + ".type", path + ".type must be \"function\"");
  }
  auto function = TRY(tool.object("function"));
  if (!function) return invalid_field(path + ".function", path + ".function is missing");
  const std::string name_path = function->path_of("name");
  const auto name = function->value("name");
  if (!name) return invalid_field(name_path, name_path + " is missing");
  static_cast<void>(TRY(function->object("parameters")));
  static_cast<void>(TRY(function->text("description", limits.tools_bytes_max)));
  return read_name(*name, name_path, limits.name_bytes_max);
}

// "none" and "auto" are all that can be honoured without constrained decoding.
Result<bool> tools_wanted(ObjectReader& body) {
  const auto choice = body.value("tool_choice");
  if (!choice) return true;
  std::string_view word;
  if (!choice->get(word) && (word == "auto" || word == "none")) return word == "auto";
  return Error{ErrorCode::kUnsupported,
               "tool_choice must be \"auto\" or \"none\": this server can't force a tool call",
               "tool_choice"};
}

Result<void> append_tools(ObjectReader& body, const GateLimits& limits, std::string& out) {
  const bool wanted = TRY(tools_wanted(body));
  const auto tools = TRY(body.array("tools", limits.tools_max));
  if (!tools) return {};
  std::set<std::string_view> names;
  size_t index = 0;
  for (const JsonValue tool : *tools) {
    const std::string path = item_path("tools", index++);
    if (!names.insert(TRY(read_tool_name(tool, path, limits))).second) {
      return invalid_field(path + ".function.name", path + ".function.name stands twice in tools");
    }
  }
  if (!wanted || index == 0) return {};
  const std::string json = simdjson::minify(*tools);
  if (json.size() > limits.tools_bytes_max) {
    return invalid_field("tools",
                         fmt::format("tools are longer than {} bytes", limits.tools_bytes_max));
  }
  out += R"(,"tools":)";
  out += json;
  return {};
}

Result<void> append_kwargs(ObjectReader& body, const GateLimits& limits, std::string& out) {
  const auto kwargs = TRY(body.object("chat_template_kwargs"));
  if (!kwargs) return {};
  for (const ObjectReader::Field& field : kwargs->fields()) {
    const auto& allowed = limits.template_kwargs;
    if (std::find(allowed.begin(), allowed.end(), field.key) == allowed.end()) {
      return invalid_field(
          "chat_template_kwargs",
          fmt::format("chat_template_kwargs may hold only: {}", fmt::join(allowed, ", ")));
    }
    if (field.value.is_null()) continue;
    const std::string path = kwargs->path_of(field.key);
    if (field.value.is_array() || field.value.is_object()) {
      return invalid_field(path, path + " must be a boolean, a number or a string");
    }
    if (field.value.is_string()) {
      static_cast<void>(TRY(read_text(field.value, path, limits.template_kwarg_bytes_max)));
    }
    out.push_back(',');
    append_json_string(out, field.key);
    out.push_back(':');
    out += simdjson::minify(field.value);
  }
  return {};
}

}  // namespace

Result<std::string> read_template_context(ObjectReader& body, const GateLimits& limits) {
  std::string out = "{";
  TRY(append_messages(body, limits, out));
  TRY(append_tools(body, limits, out));
  out += R"(,"add_generation_prompt":true)";
  TRY(append_kwargs(body, limits, out));
  out.push_back('}');
  return out;
}

}  // namespace tandem::serve
