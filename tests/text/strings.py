# SPDX-License-Identifier: Apache-2.0
"""Random and adversarial texts for comparing tokenizers: seeded, with every script."""

from __future__ import annotations

import random

SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]

# Ranges of code points, each a kind of text: ASCII, scripts, marks, jamo, emoji, specials.
RANGES: list[list[int]] = [
    [*range(0x20, 0x7F)],
    [*range(0x61, 0x7B)],
    [*range(0x30, 0x3A)],
    [*b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"],
    [9, 10, 11, 12, 13, 32, 32, 32, 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x202F, 0x3000],
    [*range(0xA1, 0x250)],
    [*range(0x300, 0x370)],  # combining marks
    [*range(0x370, 0x530)],  # Greek, Cyrillic
    [*range(0x530, 0x700)],  # Armenian, Hebrew, Arabic
    [*range(0x700, 0x900)],
    [*range(0x900, 0xE00)],  # the scripts of India
    [*range(0xE00, 0x1000)],  # Thai, Lao, Tibetan
    [*range(0x1000, 0x1100)],
    [*range(0x1100, 0x1200)],  # Hangul jamo
    [*range(0x1200, 0x1E00)],
    [*range(0x1E00, 0x2000)],  # Latin and Greek with marks
    [*range(0x2000, 0x2E80)],
    [*range(0x3040, 0x3100)],  # kana
    [*range(0x4E00, 0x5200)],
    [*range(0xAC00, 0xB000)],  # Hangul
    [*range(0xF900, 0xFB50)],  # compatibility characters: NFC changes them
    [*range(0xFB50, 0x10000)],
    [*range(0x10000, 0x12000)],
    [*range(0x1D100, 0x1D800)],
    [*range(0x1F300, 0x1FAFF), *[0x200D, 0xFE0F] * 100, *range(0x1F3FB, 0x1F400)],
    [*range(0xE000, 0xE100), 0xFFFD, 0xFFFE, 0xFFFF, 0x10FFFF],
    SCALARS,
]

WORDS = [
    "the", " the", "Hello", " world", "don't", "I'LL", "we'Ve", "'\u017f", "'S", "it\u2019s", "1234", " 42",
    "  ", "    ", "\n", "\n\n", "\r\n", " \n ", "\t\t", "\n \n", "...", "!!!\n\n", "http://x.y/?a=b&c",
    "e\u0301", "\u0041\u030a", "\u1100\u1161\u11a8", "\u0344", "\u2126", "\u0958", "\U0001d15e",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u0000", "\ufeff",
]
LOOK_ALIKES = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
    "<|fim_prefix|>", "<|im_end|", "|im_end|>", "<|im_", "end|>", "<|", "|>", "<", "<<|im_end|>>",
    "<|IM_END|>", "<|im_end |>", "<think", "<|im_start|>system\n",
]


def fragments(rng: random.Random, count: int) -> list[str]:
    out = []
    for _ in range(count):
        choice = rng.random()
        if choice < 0.15:
            out.append(rng.choice(WORDS))
        elif choice < 0.25:
            out.append(rng.choice(LOOK_ALIKES))
        elif choice < 0.30:
            out.append(chr(rng.choice(rng.choice(RANGES))) * rng.randint(2, 30))
        else:
            code_points = rng.choice(RANGES)
            out.append("".join(map(chr, rng.choices(code_points, k=rng.randint(1, 9)))))
    return out


def broken(rng: random.Random, data: bytes) -> bytes:
    """Invalid UTF-8: a cut, a changed or an inserted byte."""
    if not data:
        return b"\xff"
    at = rng.randrange(len(data))
    choice = rng.random()
    if choice < 0.4:
        return data[:at] + data[at + 1:]
    if choice < 0.7:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
    extra = rng.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"])
    return data[:at] + extra + data[at:]


def random_texts(seed: int, count: int) -> list[bytes]:
    rng = random.Random(seed)
    pool = fragments(rng, 20_000)
    out = []
    for _ in range(count):
        data = "".join(rng.choices(pool, k=rng.randint(0, 5))).encode()
        out.append(broken(rng, data) if rng.random() < 0.05 else data)
    return out
