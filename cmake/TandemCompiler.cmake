# SPDX-License-Identifier: Apache-2.0
# Flags that hold for every target. Warnings are errors; a warning that is wrong is silenced here, with the reason.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# The vector loops are written out (Highway), so -O3 bought a longer build and no speed.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

add_library(tandem_flags INTERFACE)
target_include_directories(tandem_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(tandem_flags INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual
  -fno-math-errno -ffp-contract=off)
# Designated initialisers may leave members at their defaults: that is why we use them.
target_compile_options(tandem_flags INTERFACE -Wno-missing-field-initializers)
# GCC 12 sees an overlap in std::string's own operator+ where there is none (GCC bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(tandem_flags INTERFACE -Wno-restrict)
endif()

# -ffp-contract=off: a fused multiply-add happens only where the code says so, so the same source gives the same bits
# under GCC and Clang.

if(TANDEM_SANITIZE)
  target_compile_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer -g1)
  target_link_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE})
endif()

if(TANDEM_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Asio uses fences that GCC's ThreadSanitizer doesn't follow, and GCC warns of each.
  target_compile_options(tandem_flags INTERFACE -Wno-tsan)
endif()
if(TANDEM_FUZZ)
  # The libraries report their coverage to the fuzz target that links them.
  target_compile_options(tandem_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
