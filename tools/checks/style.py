# SPDX-License-Identifier: Apache-2.0
"""The rules of STYLE.md that a script can check. Prints every breach with file and line; exit code 1 if there is one."""

import re
import sys
from pathlib import Path

from sources import CPP_SUFFIXES, ROOT, project_files, relative

LINE_COLUMNS = 100
FUNCTION_LINES = 70
FILE_LINES = 800
CODE_SUFFIXES = CPP_SUFFIXES | {".py", ".sh", ".cmake"}
SNAKE = re.compile(r"^[a-z0-9_]+(\.[a-z0-9_]+)*$")

# Words that a comment may not hold: marks of unfinished work.
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# A comment line that is code: ends like a statement and has no sentence in it.
COMMENTED_CODE = re.compile(
    r"^\s*//\s*(?:[\w:<>*&\[\].]+\s*(?:=|\+=|\().*;\s*$|(?:if|for|while|return)\b.*[;{]\s*$|#include\b)")
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(")
EXCEPTION = re.compile(r"\bthrow\b")
SHARED_STATE = re.compile(r"\bthread_local\b|^\s*(?:static|inline)\s+std::mutex\b")
NONDETERMINISM = re.compile(r"\bstd::random_device\b|\bsrand\s*\(|\brand\s*\(\)")


def check_lines(name: str, lines: list[str], suffix: str) -> list[str]:
    found = []
    in_src = name.startswith("src/")
    support = bool(re.search(r"_(test|bench|fuzz)\.(cpp|cu|h)$", name))
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        if len(line) > LINE_COLUMNS and suffix in CPP_SUFFIXES and "http" not in line and "R\"" not in line:
            found.append(f"{where}: {len(line)} columns, at most {LINE_COLUMNS}")
        if UNFINISHED.search(line) and not name.startswith("tools/checks/"):
            found.append(f"{where}: unfinished work in the text: {UNFINISHED.search(line).group(0)}")
        if suffix not in CPP_SUFFIXES:
            continue
        code = line.split("//")[0]
        if COMMENTED_CODE.search(line):
            found.append(f"{where}: code in a comment")
        if in_src and GETENV.search(code) and not name.startswith("src/app/") and not support:
            found.append(f"{where}: only app/ reads the environment")
        if in_src and EXCEPTION.search(code) and not support:
            found.append(f"{where}: no exceptions of ours")
        if in_src and SHARED_STATE.search(code) and not support:
            found.append(f"{where}: no thread-locals, no global locks")
        if NONDETERMINISM.search(code):
            found.append(f"{where}: unseeded randomness")
    return found


def check_functions(name: str, lines: list[str]) -> list[str]:
    """Function bodies start with a line that ends in '{' at column 0 or 2 and end with '}' at the same indent.

    clang-format makes this true of every function at namespace or class level; tables and classes do not match.
    """
    found = []
    start = None
    for number, line in enumerate(lines, 1):
        if start is None:
            if re.match(r"^(  )?[A-Za-z_~].*\)[^;=]*\{$", line) and not re.match(
                    r"^\s*(namespace|class|struct|enum|union|switch|if|for|while|else)\b", line):
                start = (number, len(line) - len(line.lstrip()))
        elif line.startswith(" " * start[1] + "}"):
            length = number - start[0] + 1
            if length > FUNCTION_LINES:
                found.append(f"{name}:{start[0]}: function of {length} lines, at most {FUNCTION_LINES}")
            start = None
    return found


def check_file(path: Path) -> list[str]:
    name = relative(path)
    suffix = path.suffix
    if suffix not in CODE_SUFFIXES and path.name != "CMakeLists.txt":
        return []
    text = path.read_text(errors="replace")
    lines = text.splitlines()
    found = []
    if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(lines[:3]):
        found.append(f"{name}:1: no SPDX line")
    if not SNAKE.match(path.stem) and path.name not in {"CMakeLists.txt"} and suffix != ".cmake":
        found.append(f"{name}: file names are snake_case")
    if len(lines) > FILE_LINES:
        found.append(f"{name}: {len(lines)} lines, at most {FILE_LINES}")
    if suffix in {".h", ".cuh"} and "#pragma once" not in text:
        found.append(f"{name}: no #pragma once")
    if suffix in {".cu", ".cuh"} and not re.search(r"src/(kernels|comm)/|^bench/|^tests/", name):
        found.append(f"{name}: CUDA sources live in kernels/ and comm/")
    found += check_lines(name, lines, suffix)
    if suffix in CPP_SUFFIXES:
        found += check_functions(name, lines)
    return found


def check_kernels() -> list[str]:
    """An op is done with its contract, CPU side, test and bench."""
    found = []
    keys = ("tensors", "needs", "math", "repeat", "graph", "cost", "bound", "source")
    for header in sorted((ROOT / "src/kernels").glob("*.h")):
        text = header.read_text()
        if not re.search(r"^//   tensors ", text, re.MULTILINE):
            continue  # a helper header, not an op
        for key in keys:
            if not re.search(rf"^//   {key}\b", text, re.MULTILINE):
                found.append(f"{relative(header)}: the contract lacks '{key}'")
        for part in (f"cpu/{header.stem}.cpp", f"{header.stem}_test.cpp", f"{header.stem}_bench.cpp"):
            if not (header.parent / part).exists():
                found.append(f"{relative(header)}: no {part}")
    return found


def check_unbuilt_tests(files: list[Path]) -> list[str]:
    """No test, bench or fuzz target that exists but is not built."""
    cmake = "\n".join(p.read_text() for p in files if p.name == "CMakeLists.txt")
    return [f"{relative(p)}: in no CMakeLists.txt" for p in files
            if p.suffix == ".cpp" and relative(p).startswith(("src/", "tests/", "bench/"))
            and p.name not in cmake]


def main() -> int:
    files = project_files()
    found = [problem for path in files for problem in check_file(path)]
    found += check_kernels() + check_unbuilt_tests(files)
    print("\n".join(found) if found else f"style: {len(files)} files, nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
