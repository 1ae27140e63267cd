# SPDX-License-Identifier: Apache-2.0
"""Checks every #include under src/ against layers.txt, and outside libraries against the folders that may see them."""

import re
import sys
from pathlib import Path

from sources import ROOT, cpp_files, relative

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)

# Outside headers (by prefix) and the folders that may include them. What is not listed here is free.
OUTSIDE = {
    "boost/": {"serve", "app"},
    "simdjson": {"text", "model", "serve"},
    "nlohmann/": {"serve", "model", "app"},
    "prometheus/": {"serve", "app"},
    "CLI/": {"app"},
    "openssl/": {"serve"},
    "pcre2": {"text"},
    "utf8proc": {"text"},
    "xxhash": {"kv", "text", "transfer", "engine", "serve"},
    "hwy/": {"kernels"},
    "oneapi/": {"kernels"},
    "dnnl": {"kernels"},
    "ucp/": {"transfer"},
    "cuda": {"core", "kernels", "comm", "model"},
    "cutlass": {"kernels"},
    "flashinfer": {"kernels"},
}


def read_layers(path: Path) -> dict[str, set[str]]:
    layers: dict[str, set[str]] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        folder, separator, names = line.partition(":")
        if not separator:
            sys.exit(f"{path.name}:{number}: want 'folder: folders', got '{line}'")
        layers[folder.strip()] = set(names.split())
    return layers


def is_support(name: str) -> bool:
    return bool(re.search(r"(^|_)(test|bench|fuzz)(_\w+)?\.(cpp|cu|h)$|_driver\.cpp$", name))


def check_file(path: Path, layers: dict[str, set[str]]) -> list[str]:
    folder = path.relative_to(ROOT / "src").parts[0]
    if folder not in layers:
        return [f"{relative(path)}: folder '{folder}' is not in layers.txt"]
    allowed = layers[folder] | {folder}
    problems = []
    for kind, name in INCLUDE.findall(path.read_text(errors="replace")):
        if kind == '"':
            top = name.split("/")[0]
            if top == "bench" and is_support(path.name):
                continue
            if "/" not in name:
                problems.append(f"{relative(path)}: write the full path from src/ instead of \"{name}\"")
            elif top in layers and top not in allowed and name not in allowed:
                problems.append(f"{relative(path)}: {folder} may not include {name} (layers.txt)")
        else:
            for prefix, folders in OUTSIDE.items():
                if name.startswith(prefix) and folder not in folders and not is_support(path.name):
                    problems.append(f"{relative(path)}: <{name}> may be seen only by {sorted(folders)}")
    return problems


def check_threads(path: Path) -> list[str]:
    """Threads are made only in app/ and in tests and benches."""
    folder = path.relative_to(ROOT / "src").parts[0]
    if folder == "app" or is_support(path.name):
        return []
    text = path.read_text(errors="replace")
    return [f"{relative(path)}: makes a thread ({m.group(0).strip()}); only app/ does"
            for m in re.finditer(r"\bstd::j?thread\b(?!::)|\bpthread_create\b|\bstd::async\b", text)]


def main() -> int:
    layers = read_layers(ROOT / "layers.txt")
    files = [p for p in cpp_files() if relative(p).startswith("src/")]
    problems = [problem for p in files for problem in check_file(p, layers) + check_threads(p)]
    print("\n".join(problems) if problems else f"layers: {len(files)} files, no include out of its layer")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
