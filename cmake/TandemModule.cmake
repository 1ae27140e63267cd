# SPDX-License-Identifier: Apache-2.0

# tandem_module(NAME core SOURCES a.cpp … DEPS core … LIBS PkgConfig::x …): the library of one folder of src/.
# DEPS are folders (checked against layers.txt by tools/checks), LIBS are outside libraries.
function(tandem_module)
  cmake_parse_arguments(M "" "NAME" "SOURCES;DEPS;LIBS;PRIVATE_LIBS" ${ARGN})
  add_library(tandem_${M_NAME} STATIC ${M_SOURCES})
  list(TRANSFORM M_DEPS PREPEND tandem_)
  target_link_libraries(tandem_${M_NAME} PUBLIC tandem_flags ${M_DEPS} ${M_LIBS} PRIVATE ${M_PRIVATE_LIBS})
endfunction()

# tandem_test(NAME text_test SOURCES … DEPS text … LIBS … LABELS cpu): one GoogleTest program; each TEST is a ctest test.
# DEFINES TANDEM_… pass paths such as the source folder.
function(tandem_test)
  if(NOT TANDEM_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;DEPS;LIBS;LABELS;DEFINES" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(NOT T_LABELS)
    set(T_LABELS cpu)
  endif()
  add_executable(${T_NAME} ${T_SOURCES})
  add_dependencies(tandem_tests ${T_NAME})
  list(TRANSFORM T_DEPS PREPEND tandem_)
  target_link_libraries(${T_NAME} PRIVATE tandem_flags ${T_DEPS} ${T_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${T_NAME} PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    TANDEM_QWEN3_TOKENIZER="${TANDEM_QWEN3_TOKENIZER}" ${T_DEFINES})
  # gtest_discover_tests keeps one label only; ctest -L takes a pattern, so "cpu-threads" answers to both.
  list(JOIN T_LABELS "-" T_LABELS)
  gtest_discover_tests(${T_NAME} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT} DISCOVERY_TIMEOUT 60)
endfunction()

# tandem_bench(NAME text_bench SOURCES … DEPS … LIBS …): one benchmark program, run by tools/bench (make bench).
function(tandem_bench)
  if(NOT TANDEM_BENCHES)
    return()
  endif()
  cmake_parse_arguments(B "" "NAME" "SOURCES;DEPS;LIBS;DEFINES" ${ARGN})
  add_executable(${B_NAME} ${B_SOURCES})
  list(TRANSFORM B_DEPS PREPEND tandem_)
  target_link_libraries(${B_NAME} PRIVATE tandem_flags tandem_bench_report ${B_DEPS} ${B_LIBS})
  target_compile_definitions(${B_NAME} PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    TANDEM_QWEN3_TOKENIZER="${TANDEM_QWEN3_TOKENIZER}" ${B_DEFINES})
  set_property(GLOBAL APPEND PROPERTY TANDEM_BENCH_TARGETS ${B_NAME})
endfunction()

# tandem_fuzz(NAME safetensors_fuzz SOURCES … DEPS … LIBS … CORPUS dir): one libFuzzer program (TANDEM_FUZZ=ON, Clang).
# The seeds in CORPUS are committed; `ctest -L fuzz` runs each target for TANDEM_FUZZ_SECONDS.
set(TANDEM_FUZZ_SECONDS 60 CACHE STRING "How long ctest runs each fuzz target")
function(tandem_fuzz)
  if(NOT TANDEM_FUZZ)
    return()
  endif()
  cmake_parse_arguments(F "" "NAME;CORPUS" "SOURCES;DEPS;LIBS;DEFINES" ${ARGN})
  add_executable(${F_NAME} ${F_SOURCES})
  add_dependencies(tandem_fuzz_targets ${F_NAME})
  list(TRANSFORM F_DEPS PREPEND tandem_)
  target_link_libraries(${F_NAME} PRIVATE tandem_flags ${F_DEPS} ${F_LIBS})
  target_compile_options(${F_NAME} PRIVATE -fsanitize=fuzzer)
  target_link_options(${F_NAME} PRIVATE -fsanitize=fuzzer)
  target_compile_definitions(${F_NAME} PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}" ${F_DEFINES})
  set(work ${CMAKE_BINARY_DIR}/fuzz/${F_NAME})
  file(MAKE_DIRECTORY ${work})
  # New inputs go to the first folder (in the build tree); the committed seeds are only read.
  add_test(NAME ${F_NAME} COMMAND ${F_NAME} -max_total_time=${TANDEM_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=2048
    -print_final_stats=1 -artifact_prefix=${work}/ ${work} ${F_CORPUS})
  set_tests_properties(${F_NAME} PROPERTIES LABELS fuzz TIMEOUT 300)
endfunction()
