#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-format over every C++ source; prints what differs. Usage: format.sh [--fix]
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh' | sort -u)
if [[ ${1:-} == --fix ]]; then
  clang-format-14 -i "${files[@]}"
else
  clang-format-14 --dry-run --Werror "${files[@]}" && echo "format: ${#files[@]} files"
fi
