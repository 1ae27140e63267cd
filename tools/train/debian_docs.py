# SPDX-License-Identifier: Apache-2.0
"""Collects documentation text from Debian packages.

The packages are fetched by name with apt, unpacked beside the build and turned into plain text.
Only the text's statistics end up in the model: the documentation itself is never committed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path


@dataclass(frozen=True)
class DocPackage:
    """One documentation package, where its text lies, and under which licence it is distributed."""

    name: str
    version: str  # What this recipe was last run with (Debian 12).
    licence: str
    patterns: tuple[str, ...]
    max_chars: int


PACKAGES: list[DocPackage] = [
    DocPackage(
        "git-doc", "1:2.39.5-0+deb12u3", "GPL-2", ("usr/share/doc/git-doc/**/*.txt",), 3_500_000
    ),
    DocPackage(
        "cmake-doc",
        "3.25.1-1",
        "BSD-3-Clause",
        ("usr/share/doc/cmake-data/html/_sources/**/*.txt",),
        2_500_000,
    ),
    DocPackage(
        "debian-policy",
        "4.6.2.0",
        "GPL-2+",
        ("usr/share/doc/debian-policy/policy.html/_sources/*.txt",),
        2_000_000,
    ),
    DocPackage(
        "debian-reference-en",
        "2.100",
        "GPL-2+",
        ("usr/share/debian-reference/*.en.html",),
        2_000_000,
    ),
    DocPackage(
        "developers-reference",
        "12.18",
        "GPL-2+",
        ("usr/share/developers-reference/_sources/*.txt", "usr/share/developers-reference/*.html"),
        1_000_000,
    ),
    DocPackage(
        "maint-guide",
        "1.2.53",
        "GPL-2+",
        ("usr/share/doc/maint-guide/html/*.html", "usr/share/doc/maint-guide/**/*.html"),
        1_000_000,
    ),
    DocPackage(
        "perl-doc",
        "5.36.0-7+deb12u4",
        "GPL-1+ or Artistic",
        ("usr/share/perl/**/*.pod",),
        5_000_000,
    ),
    DocPackage(
        "postgresql-doc-15",
        "15.20-0+deb12u1",
        "PostgreSQL",
        ("usr/share/doc/postgresql-doc-15/html/*.html",),
        5_000_000,
    ),
    DocPackage(
        "python3.11-doc",
        "3.11.2-6+deb12u9",
        "PSF-2.0",
        ("usr/share/doc/python3.11/html/_sources/**/*.txt",),
        6_000_000,
    ),
    DocPackage(
        "sqlite3-doc",
        "3.40.1-2+deb12u2",
        "public domain",
        ("usr/share/doc/sqlite3/**/*.html", "usr/share/doc/sqlite3-doc/**/*.html"),
        3_000_000,
    ),
]

HELDOUT_ONE_IN = 40  # One document in forty is never trained on.
CHUNK_CHARS = 5_000

_SKIPPED = {"script", "style", "nav", "head", "svg", "footer"}
_BREAKING = {"p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "pre", "dt", "dd", "br", "table"}


class _TextOfHtml(HTMLParser):
    """Keeps the running text of a page: block elements end a paragraph, `pre` keeps its lines."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.skip_depth = 0
        self.pre_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self.skip_depth += 1
        if tag == "pre":
            self.pre_depth += 1
        if tag in _BREAKING:
            self.parts.append("\n" if tag == "br" else "\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIPPED and self.skip_depth:
            self.skip_depth -= 1
        if tag == "pre" and self.pre_depth:
            self.pre_depth -= 1
        if tag in _BREAKING:
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if not self.skip_depth:
            self.parts.append(data if self.pre_depth else re.sub(r"\s+", " ", data))


def text_of_html(page: str) -> str:
    parser = _TextOfHtml()
    parser.feed(page)
    return "".join(parser.parts)


def tidy(text: str) -> str:
    """Drops trailing spaces and piles of blank lines, which would waste the small vocabulary."""
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def chunks_of(text: str) -> list[str]:
    """Cuts a document at paragraph borders into pieces of at most about CHUNK_CHARS characters."""
    chunks: list[str] = []
    current = ""
    for paragraph in text.split("\n\n"):
        if current and len(current) + len(paragraph) > CHUNK_CHARS:
            chunks.append(current)
            current = ""
        paragraph = paragraph[: 2 * CHUNK_CHARS]
        current = f"{current}\n\n{paragraph}" if current else paragraph
    if len(current) > 200:
        chunks.append(current)
    return chunks


def unpack(package: DocPackage, work_dir: Path) -> Path:
    """Downloads and unpacks one package with apt and dpkg-deb; nothing is installed."""
    target = work_dir / package.name
    if target.exists():
        return target
    work_dir.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-qq", package.name], cwd=work_dir, check=True)
    archive = next(work_dir.glob(f"{package.name}_*.deb"))
    subprocess.run(["dpkg-deb", "-x", str(archive), str(target)], check=True)
    return target


def documents_of(package: DocPackage, root: Path) -> list[str]:
    paths = sorted({p for pattern in package.patterns for p in root.glob(pattern) if p.is_file()})
    # A stable shuffle, so that max_chars does not keep only what sorts first.
    paths.sort(key=lambda p: hashlib.sha1(p.relative_to(root).as_posix().encode()).hexdigest())
    documents: list[str] = []
    total = 0
    for path in paths:
        raw = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf-8", errors="ignore")
        text = tidy(text_of_html(text) if path.suffix == ".html" else text)
        if len(text) < 300 or "\x00" in text:
            continue
        documents.append(text)
        total += len(text)
        if total > package.max_chars:
            break
    return documents


def collect(work_dir: Path, out_dir: Path) -> dict[str, int]:
    """Writes docs_train.jsonl and docs_heldout.jsonl; returns the characters per package."""
    sizes: dict[str, int] = {}
    seen: set[str] = set()
    out_dir.mkdir(parents=True, exist_ok=True)
    with (
        (out_dir / "docs_train.jsonl").open("w") as train,
        (out_dir / "docs_heldout.jsonl").open("w") as heldout,
    ):
        for package in PACKAGES:
            for document in documents_of(package, unpack(package, work_dir)):
                digest = hashlib.sha1(document.encode()).hexdigest()
                if digest in seen:
                    continue
                seen.add(digest)
                sink = heldout if int(digest[:8], 16) % HELDOUT_ONE_IN == 0 else train
                for chunk in chunks_of(document):
                    sink.write(json.dumps({"source": package.name, "text": chunk}) + "\n")
                    sizes[package.name] = sizes.get(package.name, 0) + len(chunk)
    return sizes
