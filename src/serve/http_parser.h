// SPDX-License-Identifier: Apache-2.0
// Bytes -> one checked request, without a socket: Boost.Beast's grammar plus our own rules
// (http_head.h). The connection feeds it; the fuzz target feeds it too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http_error.h"
#include "serve/http_head.h"
#include "serve/http_limits.h"

namespace tandem::serve {

struct ParsedHead {
  std::string method;
  std::string path;           // see path_of_target
  std::string content_type;   // media type alone, lower case; may be empty
  std::string authorization;  // the field's value; empty if absent or there twice
  std::string request_id;     // valid, or empty
  std::string traceparent;    // valid, or empty
  std::optional<uint64_t> content_length;
  bool has_body = false;
  bool expects_continue = false;  // and a body is to come
  bool keep_alive = true;
};

class HttpParser {
 public:
  enum class Status {
    kNeedMore,  // call again with what was not consumed and more
    kHead,      // head() is there; the next call goes on with the body
    kComplete,  // body() too; reset() before the next request
    kRefused,   // the connection can't go on after its answer
  };
  struct Step {
    size_t consumed = 0;
    Status status = Status::kNeedMore;
    Refusal refusal{};
  };

  explicit HttpParser(const HttpLimits& limits);  // outlives the parser
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  [[nodiscard]] Step feed(std::string_view bytes);
  [[nodiscard]] ParsedHead& head();  // after kHead
  [[nodiscard]] std::string& body();
  void reset();  // also gives the memory back

 private:
  class Message;
  const HttpLimits& limits_;
  HeadScanner scanner_;
  std::unique_ptr<Message> message_;  // from the end of the head on
};

}  // namespace tandem::serve
