# SPDX-License-Identifier: Apache-2.0
"""Times tokenizers and tiktoken on one text with one thread, for tokenizer_bench.

    tokenizer_bench_peers.py TOKENIZER_JSON TEXT_FILE

Prints "package version<TAB>MB/s" lines: the median of 3 calls. Each package gets the whole text in
one call, as the C++ tokenizer does; tiktoken is built from the same vocabulary and pattern.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tiktoken
import tokenizers


def rate(encode: Callable[[str], object], text: str) -> float:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        encode(text)
        times.append(time.perf_counter() - begin)
    return len(text.encode()) / 1e6 / statistics.median(times)


def byte_of_character() -> dict[str, int]:
    """The printable alphabet of byte-level vocabularies."""
    out = {}
    others = 0
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or (0xA1 <= byte <= 0xFF and byte != 0xAD):
            out[chr(byte)] = byte
        else:
            out[chr(256 + others)] = byte
            others += 1
    return out


def tiktoken_encoding(path: Path) -> tiktoken.Encoding:
    content = json.loads(path.read_text())
    alphabet = byte_of_character()
    ranks = {bytes(alphabet[c] for c in token): rank for token, rank in content["model"]["vocab"].items()}
    pattern = content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    special = {token["content"]: token["id"] for token in content["added_tokens"]}
    return tiktoken.Encoding("qwen", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


def main() -> None:
    path = Path(sys.argv[1])
    text = Path(sys.argv[2]).read_bytes().decode("utf-8", "replace")
    hugging_face = tokenizers.Tokenizer.from_file(str(path))
    print(f"tokenizers {tokenizers.__version__}\t{rate(hugging_face.encode, text):.3f}", flush=True)
    if max(len(word) for word in text.split(" ")) > 100_000:
        return  # tiktoken recurses on very long pieces
    encoding = tiktoken_encoding(path)
    encode = lambda t: encoding.encode(t, allowed_special="all")
    print(f"tiktoken {tiktoken.__version__}\t{rate(encode, text):.3f}", flush=True)


main()
