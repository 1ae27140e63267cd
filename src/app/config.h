// SPDX-License-Identifier: Apache-2.0
// Everything a person can set, in one struct, read once from the command line. Only main() makes
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>

#include "core/result.h"

namespace tandem::app {

// What serve and generate share: the model and the engine around it.
struct EngineFlags {
  std::filesystem::path model_dir;
  bool whole = false;           // one worker, no handoff
  int32_t page_tokens = 64;     // tokens of one KV page
  double kv_gib = 1.0;          // KV memory of each worker
  int32_t context_tokens = 0;   // prompt + output; 0: the model's own
  int32_t batch_tokens = 1024;  // rows of one step
  int32_t chunk_tokens = 256;   // rows of one prompt in one step
  int32_t sequences = 256;      // running at a time
  int32_t queue = 1024;         // waiting requests, then 429
  bool prefix_cache = true;
  int threads = 0;  // of each worker's team; 0: the cores shared between the workers
};

struct ServeFlags {
  EngineFlags engine;
  std::string served_name;  // empty: the folder's name
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string admin_host = "127.0.0.1";
  uint16_t admin_port = 9000;
  std::filesystem::path api_key_file;
  bool allow_keyless = false;
  int32_t drain_seconds = 30;
  int32_t head_timeout_ms = 10'000;
  int32_t write_timeout_ms = 20'000;
  int32_t body_mib = 32;
  int32_t connections = 4096;
  int workers = 2;                  // threads for JSON, templates and tokenising
  bool generation_defaults = true;  // generation_config.json where a request is silent
  bool stand_in = false;            // a model that costs nothing, to measure the front end
  double stand_in_rate = 0;         // its tokens/s a stream; 0: as fast as it can
  std::string log_level = "info";
};

struct GenerateFlags {
  EngineFlags engine;
  std::string prompt;
  bool raw = false;  // no chat template
  int32_t max_tokens = 512;
  double temperature = -1;  // < 0: the model's default
  double top_p = -1;
  int32_t top_k = -1;
  uint64_t seed = 0;
  bool seed_given = false;
};

struct InspectFlags {
  std::filesystem::path model_dir;
  int32_t page_tokens = 64;
};

struct HelpFlags {
  std::string text;  // --help or --version: print and end well
};

using Command = std::variant<HelpFlags, ServeFlags, GenerateFlags, InspectFlags>;

// Errors: one line that names the flag.
[[nodiscard]] Result<Command> parse_command_line(int argc, const char* const* argv);

}  // namespace tandem::app
