// SPDX-License-Identifier: Apache-2.0
#include "app/config.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <sstream>

namespace tandem::app {
namespace {

void add_engine_flags(CLI::App& app, EngineFlags& flags) {
  app.add_option("model", flags.model_dir, "Folder of a checkpoint in Hugging Face layout")
      ->required();
  app.add_flag(
      "--whole", flags.whole,
      "One worker for prompts and tokens; without it prompts run on a prefill worker and their "
      "KV cache is handed to a decode worker");
  app.add_option("--page-tokens", flags.page_tokens, "Tokens of one KV cache page")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  app.add_option("--kv-gib", flags.kv_gib, "Memory of each worker's KV cache in GiB")
      ->check(CLI::Range(0.001, 16384.0))
      ->capture_default_str();
  app.add_option("--context-tokens", flags.context_tokens,
                 "Longest prompt + output; 0 takes the model's own limit")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--batch-tokens", flags.batch_tokens, "Most tokens that one step computes")
      ->check(CLI::Range(1, 1 << 17))
      ->capture_default_str();
  app.add_option("--chunk-tokens", flags.chunk_tokens, "Most tokens of one prompt in one step")
      ->check(CLI::Range(1, 1 << 17))
      ->capture_default_str();
  app.add_option("--sequences", flags.sequences, "Most sequences that run at a time on a worker")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--queue", flags.queue, "Most requests that wait; the next one gets 429")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("!--no-prefix-cache", flags.prefix_cache,
               "Compute every prompt anew instead of reusing pages of equal beginnings");
  app.add_option("--threads", flags.threads,
                 "Threads of each worker; 0 shares the machine's cores between the workers")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void add_serve(CLI::App& root, ServeFlags& flags) {
  CLI::App& app = *root.add_subcommand("serve", "Serve a model over HTTP with OpenAI's API");
  add_engine_flags(app, flags.engine);
  app.add_option("--name", flags.served_name, "Model name that clients use [the folder's name]");
  app.add_option("--host", flags.host, "Address of the public listener")->capture_default_str();
  app.add_option("--port", flags.port,
                 "Port of the public listener; 0 takes a free one and prints it")
      ->capture_default_str();
  app.add_option("--admin-host", flags.admin_host, "Address of /live, /ready and /metrics")
      ->capture_default_str();
  app.add_option("--admin-port", flags.admin_port, "Port of the admin listener; 0 takes a free one")
      ->capture_default_str();
  app.add_option("--api-key-file", flags.api_key_file,
                 "File with one key (or sha256:DIGEST) a line; requests must send one of them");
  app.add_flag("--allow-keyless", flags.allow_keyless,
               "Listen beyond loopback although there is no key file");
  app.add_option("--drain-seconds", flags.drain_seconds,
                 "After SIGTERM, how long running requests may take to finish")
      ->check(CLI::Range(0, 86'400))
      ->capture_default_str();
  app.add_option("--head-timeout-ms", flags.head_timeout_ms, "For a request's head to arrive")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str();
  app.add_option("--write-timeout-ms", flags.write_timeout_ms,
                 "For a client to take what was written; then it is cut and its request cancelled")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str();
  app.add_option("--body-mib", flags.body_mib, "Largest request body in MiB")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--connections", flags.connections, "Most connections at a time")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--workers", flags.workers, "Threads for JSON, chat templates and tokenising")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_flag(
      "!--no-generation-defaults", flags.generation_defaults,
      "Ignore generation_config.json: temperature 1 and no truncation where a request is silent");
  app.add_flag("--stand-in", flags.stand_in,
               "Answer from a fixed text instead of the model, to measure the front end");
  app.add_option("--stand-in-rate", flags.stand_in_rate,
                 "Tokens/s of each stream of the stand-in; 0 is as fast as it can")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
}

void add_generate(CLI::App& root, GenerateFlags& flags) {
  CLI::App& app = *root.add_subcommand("generate", "Answer one prompt on the terminal");
  add_engine_flags(app, flags.engine);
  app.add_option("prompt", flags.prompt, "What to answer; a user message, or plain text with --raw")
      ->required();
  app.add_flag("--raw", flags.raw, "Continue the prompt as it is, without the chat template");
  app.add_option("--max-tokens", flags.max_tokens, "Longest answer in tokens")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--temperature", flags.temperature, "0 is greedy [the model's default]")
      ->check(CLI::Range(0.0, 2.0));
  app.add_option("--top-p", flags.top_p,
                 "Smallest set of tokens with this share [the model's default]")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--top-k", flags.top_k, "Only the k best tokens; 0 is off [the model's default]")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--seed", flags.seed, "Same seed, same answer [random]")
      ->each([&flags](const std::string&) { flags.seed_given = true; });
}

void add_inspect(CLI::App& root, InspectFlags& flags) {
  CLI::App& app =
      *root.add_subcommand("inspect", "Tell what a checkpoint holds and where it would fit");
  app.add_option("model", flags.model_dir, "Folder of a checkpoint in Hugging Face layout")
      ->required();
  app.add_option("--page-tokens", flags.page_tokens, "Tokens of one KV cache page")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
}

// CLI11's texts can span lines; ours is one line.
Error usage_error(const CLI::ParseError& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return Error{ErrorCode::kInvalidArgument, text + " (see --help)", ""};
}

}  // namespace

Result<Command> parse_command_line(int argc, const char* const* argv) {
  ServeFlags serve;
  GenerateFlags generate;
  InspectFlags inspect;
  CLI::App app("Tandem serves Qwen mixture-of-experts models, prefill and decode apart.", "tandem");
  app.set_version_flag("--version", "tandem " TANDEM_VERSION);
  app.require_subcommand(1);
  add_serve(app, serve);
  add_generate(app, generate);
  add_inspect(app, inspect);
  if (argc > 1 && argv[1][0] != '-' &&
      std::ranges::none_of(app.get_subcommands(nullptr),
                           [&](const CLI::App* sub) { return sub->check_name(argv[1]); })) {
    return Error{ErrorCode::kInvalidArgument,
                 "there is no command '" + std::string(argv[1]) +
                     "'; there are serve, generate and inspect (see --help)",
                 ""};
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    return Command{HelpFlags{chosen.empty() ? app.help() : chosen.front()->help()}};
  } catch (const CLI::CallForAllHelp&) {
    return Command{HelpFlags{app.help("", CLI::AppFormatMode::All)}};
  } catch (const CLI::CallForVersion& version) {
    return Command{HelpFlags{std::string(version.what()) + "\n"}};
  } catch (const CLI::ParseError& error) {
    return usage_error(error);
  }
  if (app.got_subcommand("serve")) return Command{std::move(serve)};
  if (app.got_subcommand("generate")) return Command{std::move(generate)};
  return Command{std::move(inspect)};
}

}  // namespace tandem::app
