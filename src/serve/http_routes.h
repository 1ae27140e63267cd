// SPDX-License-Identifier: Apache-2.0
// Path and method -> handler of one listener. Made at start, read by every connection.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "serve/exchange.h"

namespace tandem::serve {

class RouteTable {
 public:
  struct Path {
    std::string path;
    std::string allow;          // "Allow: GET, POST\r\n", for 405
    bool needs_key = true;      // where the listener has keys
    std::vector<Route> routes;  // one per method

    [[nodiscard]] const Handler* find(std::string_view method) const;
  };

  // Errors: kInvalidArgument for a path that no request can have, a route given twice, or an open
  // path without a route.
  static Result<RouteTable> open(std::vector<Route> routes,
                                 const std::vector<std::string>& open_paths);

  [[nodiscard]] const Path* find(std::string_view path) const;

 private:
  std::vector<Path> paths_;  // a handful: a walk is faster than a hash
};

}  // namespace tandem::serve
