# SPDX-License-Identifier: Apache-2.0
"""Step 1: collects the documentation, trains the tokenizer and writes the evaluation questions.

python tools/train/prepare.py --work .cache/train --model models/tandem-small
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random
from typing import Any

import batches
import debian_docs
import prose
import tasks
import tokenizer as tokenizer_form
from chat_format import TEMPLATE, Chat
from tasks import Source

MODEL_MAX_LENGTH = 4096
TOKENIZER_CHARS = 12_000_000


def tokenizer_corpus(documents: list[str], source: Source, rng: Random) -> list[str]:
    texts: list[str] = []
    total = 0
    for document in rng.sample(documents, len(documents)):
        texts.append(document)
        total += len(document)
        if total > TOKENIZER_CHARS:
            break
    texts += [prose.paragraph(rng) for _ in range(4000)]
    makers = (tasks.arithmetic, tasks.small_talk, lambda r, s: tasks.recall(r, s, tokens=0))
    for _ in range(2000):
        for maker in makers:
            texts += [turn.text for turn in maker(rng, source).turns]
    return texts


def item_of(chat: Chat, expected: str) -> dict[str, Any]:
    """The last turn is the answer: it is what the model has to find."""
    return {"messages": chat.messages()[:-1], "expected": expected}


def recall_items(
    rng: Random, source: Source, count: int, tokens: int, terse: bool
) -> list[dict[str, Any]]:
    items = []
    for _ in range(count):
        chat = tasks.recall(rng, source, tokens, questions=1, codes=rng.randint(4, 8), terse=terse)
        code = "".join(c for c in chat.turns[-1].text if c.isdigit())
        items.append(
            {
                **item_of(chat, code),
                "style": "terse" if terse else "sentence",
                "context_tokens": tokens,
            }
        )
    return items


def arithmetic_items(rng: Random, source: Source, count: int) -> list[dict[str, Any]]:
    items = []
    for _ in range(count):
        chat = Chat(turns=tasks.sum_turns(rng, source.heldout))
        items.append(item_of(chat, chat.turns[-1].text.rpartition("= ")[2].rstrip(".")))
    return items


def chat_items(rng: Random, source: Source, count: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    while len(items) < count:
        chat = tasks.small_talk(rng, source, exchanges=rng.randint(3, 8), ask_back=True)
        asked = chat.turns[-2].text
        if "my name" in asked or "my favorite" in asked.lower():
            items.append(item_of(chat, chat.turns[-1].text))
    return items


def write_lines(path: Path, items: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items))


def write_questions(eval_dir: Path, seed: int) -> None:
    # The questions are committed, so their contexts are generated stories, not documentation.
    source = Source([], heldout=True)
    rng = Random(f"{seed}/questions")
    recalls = recall_items(rng, source, 200, 2100, terse=False)
    recalls += recall_items(rng, source, 25, 2100, terse=True)
    recalls += recall_items(rng, source, 25, 3600, terse=False)
    write_lines(eval_dir / "recall.jsonl", recalls)
    write_lines(eval_dir / "arithmetic.jsonl", arithmetic_items(rng, source, 400))
    write_lines(eval_dir / "chat.jsonl", chat_items(rng, source, 100))
    # Perplexity: our own generated text. That of documentation is measured from the work folder.
    write_lines(
        eval_dir / "heldout.jsonl",
        [{"text": "\n\n".join(prose.paragraph(rng) for _ in range(6))} for _ in range(40)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".cache/train"))
    parser.add_argument(
        "--packages", type=Path, help="where packages are unpacked (default WORK/packages)"
    )
    parser.add_argument("--model", type=Path, default=Path("models/tandem-small"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sizes = debian_docs.collect(args.packages or args.work / "packages", args.work)
    for name, chars in sizes.items():
        print(f"{name:24} {chars:>10,} characters")
    documents = batches.load_documents(args.work / "docs_train.jsonl")
    source = Source(batches.paragraphs_of(documents))
    corpus = tokenizer_corpus(documents, source, Random(f"{args.seed}/tokenizer"))
    content = tokenizer_form.train(corpus)
    tokenizer_form.write(args.model, content, TEMPLATE, MODEL_MAX_LENGTH)
    write_questions(args.model / "eval", args.seed)


if __name__ == "__main__":
    main()
