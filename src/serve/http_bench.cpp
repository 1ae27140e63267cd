// SPDX-License-Identifier: Apache-2.0
// The HTTP side with a model that costs nothing: requests/s, streamed events/s, memory of an idle
// connection. The server has one thread, the load generator another, as on a machine of two cores.
// Peer: a server that writes ready bytes without looking at the request (http_peer_bench.h).
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/report.h"
#include "serve/http_load.h"
#include "serve/http_peer_bench.h"
#include "serve/http_server.h"

namespace tandem::serve {
namespace {

constexpr int kRepeats = 5;
constexpr int kEventsPerAnswer = 128;
constexpr int kStreams = 256;

// What an answer and an event of the chat endpoint look like, in size.
const std::string kAnswer =
    R"({"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1700000000,)"
    R"("model":"tandem-small","choices":[{"index":0,"message":{"role":"assistant","content":)"
    R"("Hello! How can I help you today?"},"logprobs":null,"finish_reason":"stop"}],)"
    R"("usage":{"prompt_tokens":9,"completion_tokens":10,"total_tokens":19}})";
const std::string kEvent =
    R"(data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk",)"
    R"("created":1700000000,"model":"tandem-small","choices":[{"index":0,"delta":)"
    "{\"content\":\" Hello\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
const std::string kBody =
    R"({"model":"tandem-small","messages":[{"role":"user","content":"Hello there, how are you?"}],)"
    R"("max_tokens":128,"temperature":0.7})";

std::string request_for(const std::string& path) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost:8000\r\nUser-Agent: OpenAI/Python 1.0\r\n"
      "Accept: application/json\r\nContent-Type: application/json\r\n"
      "Authorization: Bearer sk-bench\r\nContent-Length: {}\r\n\r\n{}",
      path, kBody.size(), kBody);
}

double thread_cpu_s() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// The model that costs nothing: each loop turn, every stream that is not behind gets
// `events_per_turn` events.
class Model {
 public:
  Model(boost::asio::io_context& io, int events_per_turn)
      : io_(io), events_per_turn_(events_per_turn) {}

  void add(std::shared_ptr<Exchange> exchange) {
    exchange->begin_stream("text/event-stream");
    streams_.push_back({std::move(exchange), kEventsPerAnswer});
    if (streams_.size() == 1) boost::asio::post(io_, [this] { step(); });
  }

 private:
  struct Stream {
    std::shared_ptr<Exchange> exchange;
    int left;
  };

  void step() {
    for (Stream& stream : streams_) {
      if (stream.exchange->unsent_bytes() > 16 * 1024) continue;
      for (int i = 0; i < events_per_turn_ && stream.left > 0; ++i, --stream.left) {
        stream.exchange->send(kEvent);
      }
      if (stream.left == 0) stream.exchange->end();
    }
    std::erase_if(streams_, [](const Stream& s) { return s.left == 0 || s.exchange->gone(); });
    if (!streams_.empty()) boost::asio::post(io_, [this] { step(); });
  }

  boost::asio::io_context& io_;
  const int events_per_turn_;
  std::vector<Stream> streams_;
};

class BenchServer {
 public:
  BenchServer() {
    HttpServerOptions options;
    const std::vector<std::string> key = {"sk-bench"};
    options.keys = std::move(ApiKeys::open(key)).value();
    options.limits.connections = options.limits.connections_per_ip = 8192;
    options.limits.idle_deadline = options.limits.head_deadline = std::chrono::hours(1);
    options.routes = {
        {"POST", "/whole",
         [](const std::shared_ptr<Exchange>& exchange) {
           exchange->reply(200, "application/json", kAnswer);
         }},
        {"POST", "/one", [this](std::shared_ptr<Exchange> e) { one_.add(std::move(e)); }},
        {"POST", "/eight", [this](std::shared_ptr<Exchange> e) { eight_.add(std::move(e)); }},
        {"POST", "/idle", [this](std::shared_ptr<Exchange> exchange) {
           exchange->begin_stream("text/event-stream");
           exchange->send(kEvent);
           idle_.push_back(std::move(exchange));
         }}};
    server_ = std::move(HttpServer::open(io_, std::move(options))).value();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~BenchServer() {
    run([this] {
      server_.reset();
      idle_.clear();
    });
    work_.reset();
    io_.stop();
    thread_.join();
  }
  [[nodiscard]] uint16_t port() const { return server_->port(); }
  void run(const std::function<void()>& work) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  double cpu_s() {
    double seconds = 0;
    run([&] { seconds = thread_cpu_s(); });
    return seconds;
  }

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  Model one_{io_, 1}, eight_{io_, 8};
  std::vector<std::shared_ptr<Exchange>> idle_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

struct Spread {
  std::vector<double> values;
  [[nodiscard]] double median() {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }
};

struct LoadCase {
  const char* name;
  const char* case_name;
  const char* unit;
  std::string path;
  int connections;
  double limit;  // the aim
  PeerOptions peer;
};

void measure_load(bench::Report& report, BenchServer& server, const LoadCase& load_case) {
  if (!report.wants(load_case.name, load_case.case_name)) return;
  LoadOptions load{.port = server.port(),
                   .request = request_for(load_case.path),
                   .connections = load_case.connections,
                   .seconds = report.quick() ? 0.3 : 1.5};
  const bool is_stream = load_case.peer.events_per_answer > 0;
  const auto rate = [&](const LoadResult& result) {
    if (result.failures > 0) fmt::print("  {} failures\n", result.failures);
    return static_cast<double>(is_stream ? result.events : result.requests) / result.seconds;
  };
  Spread ours, peers;
  LoadResult last;
  double server_cpu_s = 0, client_cpu_s = 0;
  BarePeer peer(load_case.peer);
  for (int i = 0; i < (report.quick() ? 1 : kRepeats); ++i) {
    load.port = server.port();
    const double server_before = server.cpu_s(), client_before = thread_cpu_s();
    last = run_load(load).value();
    server_cpu_s = server.cpu_s() - server_before;
    client_cpu_s = thread_cpu_s() - client_before;
    ours.values.push_back(rate(last));
    load.port = peer.port();
    peers.values.push_back(rate(run_load(load).value()));
  }
  report.add({.name = load_case.name,
              .case_name = load_case.case_name,
              .value = ours.median(),
              .unit = load_case.unit,
              .limit = load_case.limit,
              .peer = "no server at all",
              .peer_value = peers.median(),
              .min = ours.values.front(),
              .max = ours.values.back(),
              .repeats = static_cast<int>(ours.values.size())});
  const double work = static_cast<double>(is_stream ? last.events : last.requests);
  report.note(fmt::format(
      "{} {}: CPU of one {}: server {:.2f} us, load generator {:.2f} us; {} p50 {:.2f} ms, p99 "
      "{:.2f} ms{}",
      load_case.name, load_case.case_name, is_stream ? "event" : "request",
      1e6 * server_cpu_s / work, 1e6 * client_cpu_s / work, is_stream ? "first event" : "answer",
      1e3 * last.first.percentile_s(50), 1e3 * last.first.percentile_s(99),
      is_stream ? fmt::format("; gap p50 {:.2f} ms, p99 {:.2f} ms", 1e3 * last.gap.percentile_s(50),
                              1e3 * last.gap.percentile_s(99))
                : ""));
}

// Plain descriptors, so that the client's side of this process stays small.
int connect_raw(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(port)};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0 ? fd : -1;
}

void measure_memory(bench::Report& report, BenchServer& server, const char* case_name,
                    const std::string& request) {
  if (!report.wants("http/memory", case_name)) return;
  constexpr int kCount = 2000;
  std::vector<int> clients;
  clients.reserve(kCount);
  std::string buffer(4096, '\0');
  server.run([] {});
  const size_t before = resident_bytes();
  for (int i = 0; i < kCount; ++i) {
    const int fd = connect_raw(server.port());
    if (fd < 0) break;
    clients.push_back(fd);
    if (request.empty()) continue;
    if (send(fd, request.data(), request.size(), 0) < 0) break;
    if (recv(fd, buffer.data(), buffer.size(), 0) <= 0) break;
  }
  server.run([] {});
  const double bytes = static_cast<double>(resident_bytes() - before);
  report.add({.name = "http/memory",
              .case_name = case_name,
              .value = bytes / static_cast<double>(clients.size()) / 1024,
              .unit = "KiB",
              .repeats = static_cast<int>(clients.size())});
  for (const int fd : clients) close(fd);
}

}  // namespace
}  // namespace tandem::serve

int main(int argc, char** argv) {
  using namespace tandem::serve;
  tandem::bench::Report report(argc, argv, "HTTP with a model that costs nothing");
  rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 16384);
  setrlimit(RLIMIT_NOFILE, &files);

  BenchServer server;
  // First, while the process is still small.
  measure_memory(report, server, "idle stream, resident", request_for("/idle"));
  measure_memory(report, server, "idle connection, resident", "");

  const std::string answer = fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nContent-Type: application/json\r\n\r\n{}",
      kAnswer.size(), kAnswer);
  const PeerOptions peer_stream = {.head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                                   .event = fmt::format("{:x}\r\n{}\r\n", kEvent.size(), kEvent),
                                   .events_per_answer = kEventsPerAnswer,
                                   .tail = "0\r\n\r\n"};
  measure_load(report, server,
               {"http/whole", "64 connections", "req/s", "/whole", 64, 4000, {.head = answer}});
  measure_load(report, server,
               {"http/whole", "1 connection", "req/s", "/whole", 1, 4000, {.head = answer}});
  measure_load(report, server,
               {"http/stream", "256 streams, 1 event a turn", "events/s", "/one", kStreams, 300'000,
                peer_stream});
  measure_load(report, server,
               {"http/stream", "256 streams, 8 events a turn", "events/s", "/eight", kStreams,
                300'000, peer_stream});
  report.note(
      "1 thread serves, 1 thread loads; limit = the aim; peer = a loop that writes ready "
      "bytes, one write an event, with the same load generator");
  return report.finish();
}
