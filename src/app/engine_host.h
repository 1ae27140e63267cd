// SPDX-License-Identifier: Apache-2.0
// The engine of this process with everything it runs on: model, KV memory, thread teams and the
// threads that step it. serve and generate make one; the front end talks to it through its Link.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "app/config.h"
#include "app/cpu_team.h"
#include "app/load.h"
#include "core/clock.h"
#include "core/result.h"
#include "engine/api.h"
#include "engine/split_engine.h"
#include "engine/whole_engine.h"

namespace tandem::app {

class EngineHost {
 public:
  struct Args {
    const EngineFlags& flags;
    const LoadedText& text;
    std::string model_name;
    bool one_tenant = true;  // no API keys tell clients apart
    bool quiet = false;      // no progress
  };
  // Loads the weights and reserves all memory; errors name the flag or the file.
  static Result<std::unique_ptr<EngineHost>> create(const Args& args);
  ~EngineHost();  // stop()
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  [[nodiscard]] engine::Link& link() { return link_; }
  [[nodiscard]] const engine::EngineInfo& info() const;
  [[nodiscard]] const Clock& clock() const { return clock_; }

  void start();  // after the front end has set link().on_events
  void drain();  // new requests end with kUnavailable
  void stop();   // ends the threads; requests that still run get no more events

 private:
  // What one worker's thread computes with.
  struct Seat {
    std::unique_ptr<CpuTeam> team;
    std::unique_ptr<Scratch> scratch;
    [[nodiscard]] Exec exec() const;
  };
  explicit EngineHost(size_t queue) : link_(queue) {}
  Result<void> build(const Args& args);
  Result<void> build_split(const Args& args, engine::WorkerSettings worker);
  Result<void> build_whole(const Args& args, const engine::WorkerSettings& worker);
  engine::Compute make_compute(const Args& args, int threads);
  void loop(const std::function<bool(TimePoint)>& step,
            const std::function<void(Duration)>& wait) const;

  SteadyClock clock_;
  engine::Link link_;
  std::optional<model::Model> model_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::unique_ptr<engine::SplitEngine> split_;  // exactly one of the two
  std::unique_ptr<engine::WholeEngine> whole_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

// Unpredictable bits of the operating system, for secrets and default seeds.
[[nodiscard]] uint64_t os_random_u64();

}  // namespace tandem::app
