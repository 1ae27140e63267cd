// SPDX-License-Identifier: Apache-2.0
#include "serve/http_routes.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/http_head.h"

namespace tandem::serve {

const Handler* RouteTable::Path::find(std::string_view method) const {
  for (const Route& route : routes) {
    if (route.method == method) return &route.handler;
  }
  return nullptr;
}

Result<RouteTable> RouteTable::open(std::vector<Route> routes,
                                    const std::vector<std::string>& open_paths) {
  RouteTable table;
  for (Route& route : routes) {
    if (path_of_target(route.path) != route.path || route.method.empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("route {} {} can't be asked for", route.method, route.path),
                   {}};
    }
    auto path = std::find_if(table.paths_.begin(), table.paths_.end(),
                             [&](const Path& known) { return known.path == route.path; });
    if (path == table.paths_.end()) {
      path = table.paths_.insert(path, Path{.path = route.path});
    }
    if (path->find(route.method) != nullptr) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("route {} {} is given twice", route.method, route.path),
                   {}};
    }
    path->routes.push_back(std::move(route));
  }
  for (const std::string& open_path : open_paths) {
    const auto path = std::find_if(table.paths_.begin(), table.paths_.end(),
                                   [&](const Path& known) { return known.path == open_path; });
    if (path == table.paths_.end()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("no route {}", open_path), {}};
    }
    path->needs_key = false;
  }
  for (Path& path : table.paths_) {
    path.allow = "Allow: ";
    for (const Route& route : path.routes) {
      path.allow += (&route == path.routes.data() ? "" : ", ") + route.method;
    }
    path.allow += "\r\n";
  }
  return table;
}

const RouteTable::Path* RouteTable::find(std::string_view path) const {
  for (const Path& known : paths_) {
    if (known.path == path) return &known;
  }
  return nullptr;
}

}  // namespace tandem::serve
