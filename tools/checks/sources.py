# SPDX-License-Identifier: Apache-2.0
"""The project's own files as git knows them: tracked, and new ones that git does not ignore."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPP_SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def project_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in sorted(set(listed.split("\0"))) if name and (ROOT / name).is_file()]


def cpp_files() -> list[Path]:
    return [p for p in project_files() if p.suffix in CPP_SUFFIXES]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
