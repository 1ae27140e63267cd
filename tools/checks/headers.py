# SPDX-License-Identifier: Apache-2.0
"""Compiles every header on its own: a header that needs another one before it is an error."""

import argparse
import concurrent.futures
import json
import re
import subprocess
import sys
from pathlib import Path

from sources import ROOT, cpp_files, relative


def include_flags(build: Path) -> list[str]:
    """All include folders that the build uses, so that outside headers are found wherever they are."""
    flags: set[str] = set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        flags |= set(re.findall(r"-(?:I|isystem )\S+", entry["command"]))
    return [part for flag in sorted(flags) for part in flag.split()]


def compile_header(path: Path, flags: list[str]) -> str:
    result = subprocess.run(
        ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
         *flags, "-x", "c++", "-include", str(path), "/dev/null"], capture_output=True, text=True)
    return f"{relative(path)}:\n{result.stderr}" if result.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    flags = include_flags(args.build)
    headers = [p for p in cpp_files() if p.suffix == ".h"]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        problems = [p for p in pool.map(lambda h: compile_header(h, flags), headers) if p]
    print("\n".join(problems) if problems else f"headers: {len(headers)} compile on their own")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
