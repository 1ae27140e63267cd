// SPDX-License-Identifier: Apache-2.0
// Bytes -> HttpParser, in pieces that the first byte chooses. Checked: it ends, never uses more
// than there is, holds its limits, and what it accepts has the form that routing relies on.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "serve/http_parser.h"

namespace tandem::serve {
namespace {

void check_head(const ParsedHead& head, const HttpLimits& limits) {
  CHECK(path_of_target(head.path) == head.path);
  CHECK(head.path.size() <= limits.target_bytes && !head.method.empty());
  CHECK(head.request_id.empty() || is_valid_request_id(head.request_id));
  CHECK(head.traceparent.empty() || is_valid_traceparent(head.traceparent));
  CHECK(head.content_length.value_or(0) <= limits.body_bytes);
  CHECK(head.has_body || head.content_length.value_or(0) == 0);
}

// Like a connection: what is not used stays, one request follows the other.
void feed_all(std::string_view bytes, size_t piece, const HttpLimits& limits) {
  HttpParser parser(limits);
  size_t used = 0, arrived = 0;
  while (true) {
    const HttpParser::Step step = parser.feed(bytes.substr(used, arrived - used));
    CHECK(step.consumed <= arrived - used);
    used += step.consumed;
    switch (step.status) {
      case HttpParser::Status::kHead:
        check_head(parser.head(), limits);
        break;
      case HttpParser::Status::kComplete:
        CHECK(parser.body().size() <= limits.body_bytes);
        parser.reset();
        break;
      case HttpParser::Status::kRefused:
        CHECK(refusal_info(step.refusal).status >= 400);
        return;
      case HttpParser::Status::kNeedMore:
        // What is kept unused is bounded, whatever comes.
        CHECK(arrived - used <= limits.head_bytes + piece);
        if (arrived == bytes.size()) return;
        arrived = std::min(bytes.size(), arrived + piece);
    }
  }
}

}  // namespace
}  // namespace tandem::serve

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  tandem::serve::HttpLimits limits;
  limits.head_bytes = 1024;
  limits.field_count = 16;
  limits.target_bytes = 128;
  limits.body_bytes = 512;
  limits.chunk_line_bytes = 64;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  tandem::serve::feed_all(bytes, data[0] == 0 ? std::max<size_t>(bytes.size(), 1) : data[0],
                          limits);
  return 0;
}
