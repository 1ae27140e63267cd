#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs ctest in a build folder and adds its counts to the file that TANDEM_TEST_TALLY names, so that CI can close with
# one line for all suites. Usage: run_tests.sh BUILD_DIR [ctest arguments]
set -uo pipefail
build=$1
shift
log=$build/ctest.log
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" "$@" 2>&1 | tee "$log" |
  grep -avE '^ *[0-9]+/[0-9]+ Test .*Passed|^ +Start +[0-9]+:'
status=${PIPESTATUS[0]}
total=$(sed -nE 's/.*tests passed, .* tests failed out of ([0-9]+).*/\1/p' "$log" | tail -1)
failed=$(sed -nE 's/.*tests passed, ([0-9]+) tests failed out of.*/\1/p' "$log" | tail -1)
skipped=$(grep -acE '\*\*\*Skipped' "$log" || true)
if [[ -n ${TANDEM_TEST_TALLY:-} ]]; then
  echo "${build##*/} $((${total:-0} - ${failed:-0} - skipped)) ${failed:-0} $skipped" >>"$TANDEM_TEST_TALLY"
fi
exit "$status"
