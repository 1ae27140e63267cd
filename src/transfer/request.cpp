// SPDX-License-Identifier: Apache-2.0
#include "transfer/request.h"

#include <fmt/format.h>

#include <string_view>

namespace tandem::transfer {
namespace {

// True where [offset, offset + length) lies inside the region; no sum here can wrap.
bool inside(const MemoryHandle& memory, uint64_t offset, uint64_t length) {
  return length <= memory.bytes && offset <= memory.bytes - length;
}

Result<void> check_pages(std::string_view side, const MemoryHandle& memory, uint64_t length,
                         uint64_t base, uint64_t stride, const std::vector<int32_t>& indices) {
  if (!inside(memory, base, length)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} base {} + {} leaves a region of {} bytes", side, base, length,
                             memory.bytes),
                 std::string(side)};
  }
  const uint64_t room = memory.bytes - length - base;
  const uint64_t index_max = stride == 0 ? UINT64_MAX : room / stride;
  for (const int32_t index : indices) {
    if (index < 0 || static_cast<uint64_t>(index) > index_max) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("{} index {} leaves a region of {} bytes", side, index, memory.bytes),
          std::string(side)};
    }
  }
  return {};
}

Result<void> check_source(const MemoryHandle& src, EndpointId self) {
  if (src.endpoint == self) return {};
  return Error{ErrorCode::kInvalidArgument, "the source is not this endpoint's memory", "src"};
}

}  // namespace

uint64_t request_bytes(const Request& request) {
  if (const auto* paged = std::get_if<PagedWrite>(&request.op)) {
    return paged->length * paged->src_indices.size();
  }
  if (const auto* single = std::get_if<SingleWrite>(&request.op)) return single->length;
  return 0;
}

EndpointId destination(const Request& request) {
  if (const auto* paged = std::get_if<PagedWrite>(&request.op)) return paged->dst.endpoint;
  if (const auto* single = std::get_if<SingleWrite>(&request.op)) return single->dst.endpoint;
  return std::get<Immediate>(request.op).dst;
}

Result<void> check_request(const Request& request, EndpointId self) {
  if (request.parts && request.parts->count > UINT32_MAX - request.parts->begin) {
    return Error{ErrorCode::kInvalidArgument, "parts wrap around", "parts"};
  }
  if (const auto* paged = std::get_if<PagedWrite>(&request.op)) {
    if (paged->src_indices.size() != paged->dst_indices.size()) {
      return Error{ErrorCode::kInvalidArgument, "source and destination differ in pages",
                   "indices"};
    }
    TRY(check_source(paged->src, self));
    TRY(check_pages("src", paged->src, paged->length, paged->src_base, paged->src_stride,
                    paged->src_indices));
    return check_pages("dst", paged->dst, paged->length, paged->dst_base, paged->dst_stride,
                       paged->dst_indices);
  }
  if (const auto* single = std::get_if<SingleWrite>(&request.op)) {
    TRY(check_source(single->src, self));
    if (!inside(single->src, single->src_offset, single->length)) {
      return Error{ErrorCode::kInvalidArgument, "the source leaves its region", "src"};
    }
    if (!inside(single->dst, single->dst_offset, single->length)) {
      return Error{ErrorCode::kInvalidArgument, "the destination leaves its region", "dst"};
    }
  }
  return {};
}

}  // namespace tandem::transfer
