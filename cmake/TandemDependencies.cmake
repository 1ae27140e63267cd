# SPDX-License-Identifier: Apache-2.0
# Every library that the project builds with, from Debian 12 by name (tools/setup/apt-packages.txt). Each folder names
# in its CMakeLists.txt which of them it links; no other folder sees their headers.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(simdjson REQUIRED IMPORTED_TARGET simdjson)
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.74 REQUIRED)
# prometheus-cpp's package file drags in its pull server; only the core library is wanted.
find_library(PROMETHEUS_CORE prometheus-cpp-core REQUIRED)
find_package(CLI11 REQUIRED)
if(TANDEM_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(TANDEM_BENCHES)
  find_package(benchmark REQUIRED)
endif()
