# SPDX-License-Identifier: Apache-2.0
"""Ids and decoded texts are those of the Hugging Face tokenizers package.

tandem_tokenize_driver (C++) and the package get the same texts; every id and every decoded byte
must agree. A failure prints the text, so it can become a case of tokenizer_test.cpp.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from strings import SCALARS, random_texts
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TANDEM_BUILD", ROOT / "build"))
QWEN3 = os.environ.get("TANDEM_QWEN3_TOKENIZER", "")
VOCABULARIES = {
    "qwen3": Path(QWEN3, "tokenizer.json") if QWEN3 else None,
    "tandem-small": ROOT / "models" / "tandem-small" / "tokenizer.json",
}
CHUNK = 50_000
PARSE, PLAIN = 0, 1

QWEN35_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
OTHER_PATTERNS = {
    "three-digits": r"'s|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+",
    "words-only": r"\w+",
    "empty-matches": r"x*",
}


@pytest.fixture(params=list(VOCABULARIES))
def vocabulary(request: pytest.FixtureRequest) -> Path:
    path = VOCABULARIES[request.param]
    if path is None or not path.is_file():
        pytest.skip(f"the {request.param} vocabulary is not on this machine "
                    "(the CMake setting TANDEM_QWEN3_TOKENIZER names the folder of the real one)")
    return path


def run_driver(path: Path, texts: list[bytes], mode: int) -> Iterator[tuple[list[int], bytes]]:
    data = b"".join(struct.pack("<II", mode, len(text)) + text for text in texts)
    driver = BUILD / "src" / "text" / "tandem_tokenize_driver"
    out = subprocess.run([driver, path], input=data, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in texts:
        (count,) = struct.unpack_from("<I", out, at)
        ids = list(struct.unpack_from(f"<{count}i", out, at + 4))
        at += 4 + 4 * count
        (size,) = struct.unpack_from("<I", out, at)
        yield ids, out[at + 4:at + 4 + size]
        at += 4 + size
    assert at == len(out)


def assert_same(path: Path, texts: list[bytes], mode: int) -> None:
    reference = Tokenizer.from_file(str(path))
    reference.encode_special_tokens = mode == PLAIN
    strings = [text.decode("utf-8", "replace") for text in texts]
    encodings = reference.encode_batch_fast(strings, add_special_tokens=False)
    expected = [encoding.ids for encoding in encodings]
    decoded = reference.decode_batch(expected, skip_special_tokens=False)
    results = run_driver(path, texts, mode)
    for text, (ids, our_text), their_ids, their_text in zip(texts, results, expected, decoded, strict=True):
        assert ids == their_ids, f"{text!r} mode {mode}"
        assert our_text == their_text.encode(), f"{text!r} decoded"


def with_pattern(path: Path, pattern: str, folder: Path) -> Path:
    content = json.loads(path.read_text())
    content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
    changed = folder / "tokenizer.json"
    changed.write_text(json.dumps(content))
    return changed


def test_random_strings(vocabulary: Path, request: pytest.FixtureRequest) -> None:
    count = request.config.getoption("--strings")
    seed = request.config.getoption("--seed")
    for chunk in range(0, count, CHUNK):
        texts = random_texts(seed + chunk, min(CHUNK, count - chunk))
        assert_same(vocabulary, texts, mode=chunk // CHUNK % 2)


def test_random_strings_newer_pattern(vocabulary: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The pattern of Qwen3.5, where marks join letters."""
    path = with_pattern(vocabulary, QWEN35_PATTERN, tmp_path)
    count = request.config.getoption("--strings") // 5
    for chunk in range(0, count, CHUNK):
        seed = request.config.getoption("--seed") + 1_000_003 + chunk
        assert_same(path, random_texts(seed, min(CHUNK, count - chunk)), PARSE)


@pytest.mark.parametrize("newer", [False, True], ids=["qwen3", "qwen3.5"])
def test_every_code_point(newer: bool, tmp_path: Path) -> None:
    """Class and NFC of every character that Unicode has assigned, among letters, digits and marks.

    Planes without assigned characters, and private use, are walked in steps of 97.
    """
    path = VOCABULARIES["tandem-small"]
    if not path.is_file():
        pytest.skip("models/tandem-small has no tokenizer.json here")
    if newer:
        path = with_pattern(path, QWEN35_PATTERN, tmp_path)
    chars = [chr(c) for c in SCALARS if c < 0x32400 or 0xE0000 <= c < 0xE0200 or c % 97 == 0]
    texts = [
        "".join(f"a{c}1{c}\n'{c}'s{c}\u0323\u0301 {c}x" for c in chars[begin:begin + 16]).encode()
        for begin in range(0, len(chars), 16)
    ]
    assert_same(path, texts, PARSE)


@pytest.mark.parametrize("name", list(OTHER_PATTERNS))
def test_other_patterns(name: str, tmp_path: Path) -> None:
    """Patterns that go through PCRE2. It knows Unicode 14, the package 16, so newer characters stay out."""
    path = VOCABULARIES["tandem-small"]
    if not path.is_file():
        pytest.skip("models/tandem-small has no tokenizer.json here")
    texts = [
        text for text in random_texts(99, 20_000)
        if all(ord(c) < 0x3000 and not 0x860 <= ord(c) < 0x8A0 and not 0x1C80 <= ord(c) < 0x1CD0
               for c in text.decode("utf-8", "replace") if c != "\ufffd")
    ]
    assert len(texts) > 5_000
    assert_same(with_pattern(path, OTHER_PATTERNS[name], tmp_path), texts, PARSE)


def test_long_pieces(vocabulary: Path) -> None:
    """One piece of many characters, where merging goes through the heap."""
    units = ["a", " ", "\n", ".", "\u4e2d", "Ab", "\u0301", "abcdefghij", "=", "e\u0301", "\U0001f600"]
    texts = [(unit * (100_000 // len(unit)))[:100_000].encode() for unit in units]
    texts += [(unit * 65)[:length].encode() for unit in units for length in (63, 64, 65, 66)]
    assert_same(vocabulary, texts, PARSE)
