// SPDX-License-Identifier: Apache-2.0
// serve_load: measures a running server on this machine.
//   serve_load --port 8000 --path /v1/completions --body '{"model":"m","prompt":"Hi"}' --stream
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "serve/http_load.h"

namespace {

void print_times(const char* what, const tandem::serve::LatencyHistogram& times) {
  if (times.count() == 0) return;
  fmt::print("{:<28} p50 {:>9.3f} ms   p90 {:>9.3f} ms   p99 {:>9.3f} ms   of {}\n", what,
             1e3 * times.percentile_s(50), 1e3 * times.percentile_s(90),
             1e3 * times.percentile_s(99), times.count());
}

}  // namespace

int main(int argc, char** argv) {
  tandem::serve::LoadOptions options;
  std::string path = "/v1/completions", key;
  std::string body = R"({"model":"tandem-small","prompt":"Hello","max_tokens":64})";
  bool stream = false;
  CLI::App app("Measures requests/s, streamed events/s and latencies of a server on 127.0.0.1");
  app.add_option("--port", options.port, "the server's port")->required();
  app.add_option("--path", path, "what to POST to")->capture_default_str();
  app.add_option("--body", body, "JSON object to post")->capture_default_str();
  app.add_option("--key", key, "API key");
  app.add_option("--connections", options.connections, "1 to 4096")->capture_default_str();
  app.add_option("--requests", options.requests, "in all; 0: as the time allows");
  app.add_option("--seconds", options.seconds, "at most 3600")->capture_default_str();
  app.add_option("--grace", options.grace_seconds, "for answers in flight at the end")
      ->capture_default_str();
  app.add_flag("--stream", stream, "adds \"stream\":true to the body");
  CLI11_PARSE(app, argc, argv);

  if (stream && body.ends_with('}')) body.insert(body.size() - 1, R"(,"stream":true)");
  options.request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{}"
      "Content-Length: {}\r\n\r\n{}",
      path, key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", key), body.size(), body);
  const auto result = tandem::serve::run_load(options);
  if (!result.ok()) {
    fmt::print(stderr, "{}\n", result.error().text);
    return 2;
  }
  fmt::print("{} connections, {:.2f} s: {} answered, {} failed, {} bytes\n", options.connections,
             result.value().seconds, result.value().requests, result.value().failures,
             result.value().bytes);
  fmt::print("{:<28} {:.1f}\n", "requests/s",
             static_cast<double>(result.value().requests) / result.value().seconds);
  if (result.value().events > 0) {
    fmt::print("{:<28} {:.1f}\n", "events/s",
               static_cast<double>(result.value().events) / result.value().seconds);
  }
  print_times(stream ? "time to first event" : "time to answer", result.value().first);
  print_times("between events of a stream", result.value().gap);
  return result.value().failures == 0 ? 0 : 1;
}
