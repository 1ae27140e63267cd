# SPDX-License-Identifier: Apache-2.0
"""clang-tidy with the short list of .clang-tidy over src/ and bench/ (tests apart: their macros dominate the time)."""

import argparse
import concurrent.futures
import re
import subprocess
import sys
from pathlib import Path

from sources import ROOT, project_files, relative


def tidy(path: Path, build: Path) -> str:
    # The build's own flags are GCC's; Clang doesn't know all of its warnings.
    result = subprocess.run(["clang-tidy-14", "--quiet", "--extra-arg=-Wno-unknown-warning-option", "-p", str(build),
                             str(path)], capture_output=True, text=True, cwd=ROOT)
    return result.stdout or result.stderr if result.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--skip", nargs="*", default=[], help="folders of src/ to leave out")
    parser.add_argument("--files", nargs="*", type=Path)
    args = parser.parse_args()
    skipped = tuple(f"src/{folder}/" for folder in args.skip)
    files = args.files or [p for p in project_files() if p.suffix == ".cpp" and relative(p).startswith("src/")
                           and not relative(p).startswith(skipped or "-")
                           and not re.search(r"(^|_)(test|bench|fuzz)(_\w+)?\.cpp$", p.name)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        problems = [p for p in pool.map(lambda f: tidy(f, args.build), files) if p]
    print("\n".join(problems) if problems else f"clang-tidy: {len(files)} files, nothing found")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
