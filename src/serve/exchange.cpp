// SPDX-License-Identifier: Apache-2.0
#include "serve/exchange.h"

#include "core/check.h"
#include "serve/http_error.h"

namespace tandem::serve {

Exchange::~Exchange() {
  if (gone_) return;
  if (!answered_) {
    const RefusalInfo& info = refusal_info(Refusal::kNoAnswer);
    sink_.reply(info.status, std::string(kJsonType), error_body(info), {});
  } else if (streaming_ && !ended_) {
    sink_.abort ? sink_.abort() : sink_.end();
  }
}

void Exchange::reply(int status, std::string content_type, std::string body,
                     std::vector<std::pair<std::string, std::string>> headers) {
  if (gone_) return;
  CHECK(!answered_, "a request is answered once");
  answered_ = true;
  sink_.reply(status, std::move(content_type), std::move(body), std::move(headers));
}

void Exchange::begin_stream(std::string content_type) {
  if (gone_) return;
  CHECK(!answered_, "a request is answered once");
  answered_ = streaming_ = true;
  sink_.begin_stream(std::move(content_type));
}

void Exchange::send(std::string bytes) {
  if (gone_) return;
  CHECK(streaming_ && !ended_, "send() belongs between begin_stream() and end()");
  if (!bytes.empty()) sink_.send(std::move(bytes));
}

void Exchange::end() {
  if (gone_) return;
  CHECK(streaming_ && !ended_, "end() belongs once after begin_stream()");
  ended_ = true;
  sink_.end();
}

size_t Exchange::unsent_bytes() const {
  return streaming_ && !ended_ && !gone_ ? sink_.unsent_bytes() : 0;
}

void Exchange::on_gone(std::function<void()> callback) {
  if (gone_) {
    callback();
    return;
  }
  on_gone_ = std::move(callback);
}

void Exchange::client_gone() {
  if (gone_ || ended_ || (answered_ && !streaming_)) return;
  gone_ = true;
  // The callback may drop what owns this exchange, so it is moved out first.
  if (auto callback = std::move(on_gone_)) callback();
}

}  // namespace tandem::serve
