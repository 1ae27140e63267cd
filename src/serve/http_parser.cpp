// SPDX-License-Identifier: Apache-2.0
// The only file that includes Boost.Beast.
#include "serve/http_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>

#include "core/check.h"

namespace tandem::serve {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;

std::string_view view(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

// Of Beast's own errors in a head. Its texts go nowhere.
Refusal refusal_of(error_code error) {
  if (error == http::error::body_limit) return Refusal::kBodyTooLarge;
  if (error == http::error::header_limit) return Refusal::kHeadTooLarge;
  if (error == http::error::bad_content_length || error == http::error::bad_transfer_encoding) {
    return Refusal::kBadFraming;
  }
  if (error == http::error::bad_method || error == http::error::bad_version) {
    return Refusal::kBadRequestLine;
  }
  if (error == http::error::bad_target) return Refusal::kBadTarget;
  return Refusal::kBadField;
}

bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

std::string media_type(std::string_view value) {
  std::string type(value.substr(0, value.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return type;
}

enum class ChunkLine { kPartial, kComplete, kRefused };

// The size line of a chunk, with the CRLF of the last chunk's data before it; of the zero chunk,
// also the CRLF behind it, since trailers are refused. Beast is shown a line only when it is
// complete: Beast 1.74 counts on five bytes behind the beginning of a zero chunk, and looks at its
// extensions only when the trailers end.
ChunkLine chunk_line(std::string_view bytes, size_t bytes_max) {
  if (bytes.starts_with("\r\n")) bytes.remove_prefix(2);
  const size_t end = bytes.find("\r\n");
  if (std::min(end, bytes.size()) > bytes_max) return ChunkLine::kRefused;
  if (end == std::string_view::npos) return ChunkLine::kPartial;
  const std::string_view line = bytes.substr(0, end);
  const size_t zeros = std::min(line.find_first_not_of('0'), line.size());
  if (zeros == 0) return ChunkLine::kComplete;
  if (zeros < line.size() && is_hex_digit(line[zeros])) return ChunkLine::kComplete;
  const bool is_zero =
      zeros == line.size() || line[zeros] == ';' || line[zeros] == ' ' || line[zeros] == '\t';
  if (!is_zero) return ChunkLine::kRefused;
  const std::string_view after = bytes.substr(end + 2);
  if (after.starts_with("\r\n")) return ChunkLine::kComplete;
  return std::string_view("\r\n").starts_with(after) ? ChunkLine::kPartial : ChunkLine::kRefused;
}

}  // namespace

// One request as Beast's callbacks build it. A callback refuses by fail().
class HttpParser::Message final : public http::basic_parser<true> {
 public:
  explicit Message(const HttpLimits& limits) : limits_(limits) {
    header_limit(static_cast<uint32_t>(limits.head_bytes));
    body_limit(limits.body_bytes);
  }

  // All of the head and nothing else.
  std::optional<Refusal> put_head(std::string_view bytes) {
    error_code error;
    put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
    if (refusal_) return refusal_;
    if (error) return refusal_of(error);
    if (!is_header_done()) return Refusal::kBadField;
    if (host_count_ != 1) return Refusal::kBadHost;
    if (const auto length = content_length()) head_.content_length = *length;
    head_.has_body = !is_done();
    head_.expects_continue = head_.expects_continue && head_.has_body;
    head_.keep_alive = keep_alive();
    if (authorization_count_ > 1) head_.authorization.clear();
    is_in_body_ = true;
    is_chunked_ = chunked();
    return std::nullopt;
  }

  Step put_body(std::string_view bytes) {
    Step step;
    error_code error;
    while (!is_done() && step.consumed < bytes.size()) {
      const std::string_view rest = bytes.substr(step.consumed);
      if (is_chunked_ && chunk_left_ == 0) {
        const ChunkLine line = chunk_line(rest, limits_.chunk_line_bytes);
        if (line == ChunkLine::kPartial) return step;
        if (line == ChunkLine::kRefused) {
          return {step.consumed, Status::kRefused, Refusal::kBadChunk};
        }
      }
      step.consumed += put(boost::asio::const_buffer(rest.data(), rest.size()), error);
      if (error) {
        const bool is_large = !refusal_ && error == http::error::body_limit;
        return {step.consumed, Status::kRefused,
                is_large ? Refusal::kBodyTooLarge : Refusal::kBadChunk};
      }
    }
    if (is_done()) step.status = Status::kComplete;
    return step;
  }

  ParsedHead head_;
  std::string body_;

 private:
  void fail(Refusal refusal, error_code& error) {
    refusal_ = refusal;
    error = http::error::bad_value;  // any error stops Beast
  }

  void on_request_impl(http::verb, boost::beast::string_view method,
                       boost::beast::string_view target, int, error_code& error) override {
    head_.method.assign(method.data(), method.size());
    // No resource has these methods, and CONNECT's target is not a path.
    if (head_.method == "CONNECT" || head_.method == "TRACE") {
      return fail(Refusal::kBadMethod, error);
    }
    if (target.size() > limits_.target_bytes) return fail(Refusal::kTargetTooLong, error);
    const auto path = path_of_target(view(target));
    if (!path) return fail(Refusal::kBadTarget, error);
    head_.path = *path;
  }

  void on_field_impl(http::field name, boost::beast::string_view name_text,
                     boost::beast::string_view value_text, error_code& error) override {
    if (is_in_body_) return fail(Refusal::kBadChunk, error);  // a trailer
    const std::string_view value = view(value_text);
    switch (name) {
      case http::field::host:
        if (++host_count_ > 1 || !is_valid_host(value)) fail(Refusal::kBadHost, error);
        return;
      case http::field::content_length: {
        // Beast takes "3, 3" and two equal fields. That it is a number in range is Beast's check.
        const bool is_number =
            std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
        if (++length_count_ > 1 || !is_number) fail(Refusal::kBadFraming, error);
        return;
      }
      case http::field::transfer_encoding:
        // Beast takes other codings as "no body" and leaves the body on the connection.
        if (!equals_ignoring_case(value, "chunked")) fail(Refusal::kTransferEncoding, error);
        return;
      case http::field::content_encoding:
        if (!equals_ignoring_case(value, "identity")) fail(Refusal::kContentEncoding, error);
        return;
      case http::field::expect:
        head_.expects_continue = equals_ignoring_case(value, "100-continue");
        if (!head_.expects_continue) fail(Refusal::kExpectation, error);
        return;
      case http::field::content_type:
        if (++type_count_ > 1) return fail(Refusal::kBadField, error);
        head_.content_type = media_type(value);
        return;
      case http::field::authorization:
        ++authorization_count_;
        head_.authorization = value;
        return;
      default:
        on_other_field(view(name_text), value);
    }
  }

  void on_other_field(std::string_view name, std::string_view value) {
    if (equals_ignoring_case(name, "X-Request-Id")) {
      if (is_valid_request_id(value)) head_.request_id = value;
    } else if (equals_ignoring_case(name, "traceparent")) {
      if (is_valid_traceparent(value)) head_.traceparent = value;
    }
  }

  void on_header_impl(error_code&) override {}

  void on_body_init_impl(const boost::optional<uint64_t>& length, error_code&) override {
    // A claimed length is not believed beyond 64 KiB; the string grows with what arrives.
    if (length) body_.reserve(std::min<uint64_t>(*length, 64 * 1024));
  }

  size_t on_body_impl(boost::beast::string_view bytes, error_code&) override {
    body_.append(bytes.data(), bytes.size());
    return bytes.size();
  }

  void on_chunk_header_impl(uint64_t size, boost::beast::string_view, error_code&) override {
    chunk_left_ = size;
  }

  size_t on_chunk_body_impl(uint64_t, boost::beast::string_view bytes, error_code&) override {
    body_.append(bytes.data(), bytes.size());
    chunk_left_ -= bytes.size();
    return bytes.size();
  }

  void on_finish_impl(error_code&) override {}
  void on_response_impl(int, boost::beast::string_view, int, error_code&) override {
    CHECK(false, "a request parser read a response");
  }

  const HttpLimits& limits_;
  std::optional<Refusal> refusal_;
  int host_count_ = 0, length_count_ = 0, type_count_ = 0, authorization_count_ = 0;
  bool is_in_body_ = false, is_chunked_ = false;
  uint64_t chunk_left_ = 0;
};

HttpParser::HttpParser(const HttpLimits& limits) : limits_(limits) {}
HttpParser::~HttpParser() = default;

HttpParser::Step HttpParser::feed(std::string_view bytes) {
  if (message_) return message_->put_body(bytes);
  const HeadScanner::Step scan = scanner_.scan(bytes, limits_);
  if (scan.refusal) return {0, Status::kRefused, *scan.refusal};
  if (scan.head_bytes == 0) return {};
  message_ = std::make_unique<Message>(limits_);
  if (const auto refusal = message_->put_head(bytes.substr(0, scan.head_bytes))) {
    return {scan.head_bytes, Status::kRefused, *refusal};
  }
  return {scan.head_bytes, Status::kHead, {}};
}

ParsedHead& HttpParser::head() {
  CHECK(message_ != nullptr, "there is no head yet");
  return message_->head_;
}

std::string& HttpParser::body() {
  CHECK(message_ != nullptr, "there is no body yet");
  return message_->body_;
}

void HttpParser::reset() {
  message_.reset();
  scanner_ = {};
}

}  // namespace tandem::serve
