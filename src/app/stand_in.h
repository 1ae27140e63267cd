// SPDX-License-Identifier: Apache-2.0
// A model that costs nothing behind the real front end, for `tandem serve --stand-in`: measures
// HTTP, JSON, tokenising and streaming alone. The thread around serve::FakeEngine.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "app/config.h"
#include "app/load.h"
#include "core/clock.h"
#include "engine/api.h"
#include "serve/fake_engine.h"

namespace tandem::app {

class StandIn {
 public:
  StandIn(const ServeFlags& flags, const LoadedText& text, const std::string& model_name);
  ~StandIn() { stop(); }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  [[nodiscard]] engine::Link& link() { return link_; }
  [[nodiscard]] const engine::EngineInfo& info() const { return info_; }
  [[nodiscard]] const Clock& clock() const { return clock_; }
  void start();
  void stop();

 private:
  SteadyClock clock_;
  engine::EngineInfo info_;
  engine::Link link_;
  serve::FakeEngine engine_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tandem::app
