# SPDX-License-Identifier: Apache-2.0
"""Packs the tasks and the documentation into training batches, in worker processes.

A batch is a function of (seed, step) alone, so a run can be repeated whatever the worker count.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import prose
import tasks
from chat_format import ANSWER_WEIGHT, PLAIN_WEIGHT, Chat, Piece, render
from tasks import Source
from tokenizers import Tokenizer

# Shares of the items that fill a sequence after an optional long context.
_MIX: list[tuple[str, float]] = [
    ("document", 0.26),
    ("prose", 0.04),
    ("arithmetic", 0.24),
    ("copying", 0.10),
    ("recall", 0.15),
    ("talk", 0.17),
    ("tool", 0.04),
]
LONG_CONTEXT_SHARE = 0.5


@dataclass(frozen=True)
class BatchSpec:
    data_dir: str
    tokenizer_path: str
    batch_size: int
    length: int
    seed: int


def load_documents(path: Path) -> list[str]:
    with path.open() as lines:
        return [json.loads(line)["text"] for line in lines]


def paragraphs_of(documents: list[str]) -> list[str]:
    """Keeps paragraphs that read as prose; they fill the contexts of the recall task."""
    out = []
    for document in documents:
        for paragraph in document.split("\n\n"):
            if 80 <= len(paragraph) <= 900 and sum(c.isalpha() for c in paragraph) > 0.6 * len(
                paragraph
            ):
                out.append(paragraph.strip("\n"))
    return out


def tool_pieces(rng: Random, source: Source) -> list[Piece]:
    chat, tools = tasks.tool_call(rng, source)
    system = render([], tools=tools)
    return [(system, PLAIN_WEIGHT), *chat.pieces()]


class Packer:
    """Makes sequences; one per worker process."""

    def __init__(self, spec: BatchSpec) -> None:
        self.spec = spec
        self.tokenizer = Tokenizer.from_file(spec.tokenizer_path)
        self.documents = load_documents(Path(spec.data_dir) / "docs_train.jsonl")
        self.source = Source(paragraphs_of(self.documents))
        self.names = [name for name, _ in _MIX]
        self.shares = [share for _, share in _MIX]

    def item(self, rng: Random) -> list[Piece]:
        kind = rng.choices(self.names, self.shares)[0]
        if kind == "document":
            return [(rng.choice(self.documents) + "<|endoftext|>", PLAIN_WEIGHT)]
        if kind == "prose":
            text = "\n\n".join(prose.paragraph(rng) for _ in range(rng.randint(1, 4)))
            return [(text + "<|endoftext|>", PLAIN_WEIGHT)]
        if kind == "tool":
            return tool_pieces(rng, self.source)
        chat: Chat
        if kind == "arithmetic":
            chat = tasks.arithmetic(rng, self.source)
        elif kind == "copying":
            chat = tasks.copying(rng, self.source)
        elif kind == "recall":
            chat = tasks.recall(rng, self.source, tokens=rng.choice([0, 60, 120, 250, 500]))
        else:
            chat = tasks.small_talk(rng, self.source)
        return chat.pieces()

    def sequence(self, rng: Random) -> tuple[np.ndarray, np.ndarray]:
        """Two more tokens than `length`: the MTP layer's target lies two ahead of its input."""
        wanted = self.spec.length + 2
        ids: list[int] = []
        weights: list[float] = []
        pieces: list[Piece] = []
        if rng.random() < LONG_CONTEXT_SHARE and self.spec.length >= 1024:
            longest = int(0.88 * self.spec.length)
            pieces = tasks.recall(rng, self.source, tokens=rng.randint(500, longest)).pieces()
        while len(ids) < wanted:
            pieces = pieces or self.item(rng)
            encoded = self.tokenizer.encode_batch_fast(
                [t for t, _ in pieces], add_special_tokens=False
            )
            for encoding, (_, weight) in zip(encoded, pieces, strict=True):
                ids += encoding.ids
                weights += [weight] * len(encoding.ids)
            pieces = []
        return (
            np.array(ids[:wanted], dtype=np.uint16),
            np.array(weights[:wanted], dtype=np.float16),
        )

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        rng = Random(f"{self.spec.seed}/{step}")
        rows = [self.sequence(rng) for _ in range(self.spec.batch_size)]
        return np.stack([r[0] for r in rows]), np.stack([r[1] for r in rows])


_packer: Packer | None = None  # One per worker process, set by the pool's initializer.


def _start(spec: BatchSpec) -> None:
    global _packer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _packer = Packer(spec)


def _make(step: int) -> tuple[np.ndarray, np.ndarray]:
    assert _packer is not None
    return _packer.batch(step)


def stream(spec: BatchSpec, steps: int, workers: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields `steps` batches of (ids [B, L+2], weights [B, L+2]) in order."""
    with multiprocessing.get_context("spawn").Pool(workers, _start, (spec,)) as pool:
        yield from pool.imap(_make, range(steps))


def answer_mask(weights: np.ndarray) -> np.ndarray:
    return weights >= ANSWER_WEIGHT
