# SPDX-License-Identifier: Apache-2.0
"""Runs every benchmark program of a build folder one after the other and gathers their JSON lines in one file.

A bench program prints a table for people and appends to --json FILE; see bench/report.h for the fields.
"""

import argparse
import subprocess
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True, help="overwritten")
    parser.add_argument("--only", default="", help="run programs whose name contains this")
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, wider spread")
    args = parser.parse_args()
    programs = sorted(p for p in args.build.rglob("*_bench") if p.is_file() and args.only in p.name)
    if not programs:
        print(f"no benchmark program in {args.build}", file=sys.stderr)
        return 2
    args.json.unlink(missing_ok=True)
    failed = []
    for program in programs:
        print(f"\n## {program.name}", flush=True)
        command = [str(program), "--json", str(args.json)] + (["--quick"] if args.quick else [])
        if program.name == "text_bench":
            command += ["--python", sys.executable]
        try:
            if subprocess.run(command, timeout=900).returncode:
                failed.append(program.name)
        except subprocess.TimeoutExpired:
            failed.append(f"{program.name} (time-out)")
    rows = sum(1 for _ in args.json.open()) if args.json.exists() else 0
    print(f"\n{len(programs)} programs, {rows} rows in {args.json}" + (f"; failed: {failed}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
