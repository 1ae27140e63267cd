// SPDX-License-Identifier: Apache-2.0
// tandem serve: puts the engine, the service, two listeners and the signals together on one I/O
// thread.
#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdio>
#include <fstream>
#include <memory>

#include "app/commands.h"
#include "app/engine_host.h"
#include "app/stand_in.h"
#include "app/worker_pool.h"
#include "core/log.h"
#include "serve/http_server.h"
#include "serve/service.h"

namespace tandem::app {
namespace {

namespace asio = boost::asio;

// How long the listeners may take to hand out the last errors after the drain's deadline.
constexpr std::chrono::seconds kLastWords{2};

Result<std::vector<std::string>> read_keys(const std::filesystem::path& file) {
  std::vector<std::string> keys;
  if (file.empty()) return keys;
  std::ifstream in(file);
  if (!in) {
    return Error{ErrorCode::kNotFound, fmt::format("cannot read the key file '{}'", file.string()),
                 "api-key-file"};
  }
  std::string line;
  while (std::getline(in, line)) {
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the key file '{}' holds no key", file.string()), "api-key-file"};
  }
  return keys;
}

serve::ServiceOptions service_options(const ServeFlags& flags, const LoadedText& text) {
  serve::ServiceOptions options;
  options.eos_ids = text.eos_ids;
  options.seed = os_random_u64();
  if (!flags.generation_defaults) return options;
  const model::GenerationDefaults& defaults = text.defaults;
  SamplingParams& sampling = options.sampling_defaults;
  if (!defaults.do_sample) sampling.temperature = 0;
  if (defaults.temperature) sampling.temperature = static_cast<float>(*defaults.temperature);
  if (defaults.top_p) sampling.top_p = static_cast<float>(*defaults.top_p);
  if (defaults.min_p) sampling.min_p = static_cast<float>(*defaults.min_p);
  if (defaults.top_k) sampling.top_k = *defaults.top_k;
  if (defaults.repetition_penalty) {
    sampling.repetition_penalty = static_cast<float>(*defaults.repetition_penalty);
  }
  return options;
}

// Everything that lives while the server runs. Destroyed in the reverse order: listeners, then the
// workers that may still post to the I/O loop, then the service, then the loop itself.
class Server {
 public:
  Server(const ServeFlags& flags, const LoadedText& text, engine::Link& link,
         const engine::EngineInfo& info, const Clock& clock)
      : flags_(flags),
        service_(service_options(flags, text), info, *text.tokenizer,
                 text.chat_template ? &*text.chat_template : nullptr, link,
                 {.try_post_work = [this](auto work) { return workers_.try_post(std::move(work)); },
                  .post_io = [this](auto work) { asio::post(io_, std::move(work)); }},
                 clock),
        workers_(flags.workers, 4096) {}

  Result<void> open() {
    const std::vector<std::string> entries = TRY(read_keys(flags_.api_key_file));
    serve::ApiKeys keys = TRY(serve::ApiKeys::open(entries));
    serve::HttpLimits limits;
    limits.head_deadline = std::chrono::milliseconds(flags_.head_timeout_ms);
    limits.write_deadline = std::chrono::milliseconds(flags_.write_timeout_ms);
    limits.body_bytes = static_cast<size_t>(flags_.body_mib) << 20;
    limits.connections = static_cast<size_t>(flags_.connections);
    limits.connections_per_ip = limits.connections;
    public_ = TRY(serve::HttpServer::open(io_, {.name = "public",
                                                .address = flags_.host,
                                                .port = flags_.port,
                                                .limits = limits,
                                                .routes = service_.routes(),
                                                .keys = std::move(keys),
                                                .allow_keyless_anywhere = flags_.allow_keyless}));
    admin_ = TRY(serve::HttpServer::open(io_, {.name = "admin",
                                               .address = flags_.admin_host,
                                               .port = flags_.admin_port,
                                               .routes = service_.admin_routes(),
                                               .allow_keyless_anywhere = true}));
    service_.show_http_counters("public", public_->counters());
    service_.show_http_counters("admin", admin_->counters());
    return {};
  }

  void announce() const {
    // On stdout, so that a script can read the ports.
    fmt::print("listening on http://{}:{}\nadmin on http://{}:{}\n", flags_.host, public_->port(),
               flags_.admin_host, admin_->port());
    std::fflush(stdout);
  }

  // Until drained or told twice. True: drained.
  bool run() {
    wait_for_signal();
    io_.run();
    return drained_;
  }

 private:
  void wait_for_signal() {
    signals_.async_wait([this](boost::system::error_code error, int) {
      if (error) return;
      if (draining_) {
        log::warn("second signal: ending at once");
        io_.stop();
        return;
      }
      begin_drain();
      wait_for_signal();
    });
  }

  void begin_drain() {
    draining_ = true;
    log::info("draining: running requests have {} s", flags_.drain_seconds);
    service_.begin_drain();
    const auto deadline = std::chrono::seconds(flags_.drain_seconds);
    deadline_.expires_after(deadline);
    deadline_.async_wait([this](boost::system::error_code error) {
      if (!error) service_.end_all();
    });
    public_->drain(deadline + kLastWords, [this] {
      drained_ = true;
      io_.stop();
    });
  }

  const ServeFlags& flags_;
  asio::io_context io_{1};
  asio::signal_set signals_{io_, SIGTERM, SIGINT};
  asio::steady_timer deadline_{io_};
  serve::Service service_;
  WorkerPool workers_;
  std::unique_ptr<serve::HttpServer> public_, admin_;
  bool draining_ = false;
  bool drained_ = false;
};

// Fails before a long load, not after it.
Result<void> check_port(const std::string& host, uint16_t port) {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' is not a numeric IP address", host),
                 "host"};
  }
  if (port == 0) return {};
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io);
  const asio::ip::tcp::endpoint endpoint(address, port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(1, error);
  if (error == asio::error::address_in_use) {
    return Error{ErrorCode::kUnavailable, fmt::format("port {} of {} is in use", port, host),
                 "port"};
  }
  if (error) {
    return Error{ErrorCode::kUnavailable, fmt::format("cannot listen on port {} of {}", port, host),
                 "port"};
  }
  return {};
}

Result<void> check_listeners(const ServeFlags& flags) {
  TRY(check_port(flags.host, flags.port));
  TRY(check_port(flags.admin_host, flags.admin_port));
  boost::system::error_code error;
  const bool loopback = asio::ip::make_address(flags.host, error).is_loopback();
  if (!loopback && flags.api_key_file.empty() && !flags.allow_keyless) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--host {} is open to the network: give --api-key-file, or --allow-keyless "
                    "if whoever reaches it may use it",
                    flags.host),
        "host"};
  }
  return {};
}

Result<bool> serve_model(const ServeFlags& flags) {
  TRY(check_listeners(flags));
  const LoadedText text = TRY(load_text(flags.engine.model_dir));
  const std::string name = flags.served_name.empty() ? text.config.name : flags.served_name;
  if (flags.stand_in) {
    StandIn stand_in(flags, text, name);
    Server server(flags, text, stand_in.link(), stand_in.info(), stand_in.clock());
    TRY(server.open());
    stand_in.start();
    server.announce();
    const bool drained = server.run();
    stand_in.stop();
    return drained;
  }
  const auto host = TRY(EngineHost::create({.flags = flags.engine,
                                            .text = text,
                                            .model_name = name,
                                            .one_tenant = flags.api_key_file.empty()}));
  Server server(flags, text, host->link(), host->info(), host->clock());
  TRY(server.open());
  host->start();
  server.announce();
  const bool drained = server.run();
  host->stop();
  return drained;
}

}  // namespace

int run_serve(const ServeFlags& flags) {
  spdlog::set_level(
      spdlog::level::from_str(flags.log_level == "warn" ? "warning" : flags.log_level));
  Result<bool> drained = false;
  try {
    drained = serve_model(flags);
  } catch (const std::exception& error) {  // Asio throws where the system refuses it a resource
    log::error("stopped: {}", error.what());
    return 1;
  }
  if (!drained.ok()) return fail_start(drained.error());
  log::info(drained.value() ? "drained" : "stopped without draining");
  return drained.value() ? 0 : 1;
}

}  // namespace tandem::app
