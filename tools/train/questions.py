# SPDX-License-Identifier: Apache-2.0
"""The held-out questions and how answers are judged, with the standard library only."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Question:
    suite: str
    messages: list[dict[str, str]]
    expected: str
    max_tokens: int
    enable_thinking: bool | None = False  # None leaves the variable out of the template.


@dataclass
class Answer:
    text: str
    ended: bool  # The model ended the turn itself, by <|im_end|>.


@dataclass
class Score:
    count: int = 0
    right: int = 0
    ended: int = 0
    wrong: list[dict[str, Any]] = field(default_factory=list)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def load(eval_dir: Path, limit: int | None = None) -> list[Question]:
    questions: list[Question] = []
    for item in lines_of(eval_dir / "recall.jsonl"):
        suite = f"recall_{item['style']}_{item['context_tokens']}"
        questions.append(Question(suite, item["messages"], item["expected"], 32))
    for item in lines_of(eval_dir / "arithmetic.jsonl"):
        questions.append(Question("arithmetic", item["messages"], item["expected"], 64))
        questions.append(
            Question("arithmetic_default", item["messages"], item["expected"], 64, None)
        )
    for item in lines_of(eval_dir / "chat.jsonl"):
        questions.append(Question("chat", item["messages"], item["expected"], 48))
        questions.append(Question("chat_default", item["messages"], item["expected"], 48, None))
    if limit is None:
        return questions
    kept: list[Question] = []
    counts: dict[str, int] = {}
    for question in questions:
        counts[question.suite] = counts.get(question.suite, 0) + 1
        if counts[question.suite] <= limit:
            kept.append(question)
    return kept


def is_right(question: Question, text: str) -> bool:
    """Recall: the one four-digit group. Arithmetic: the last number. Chat: the exact sentence."""
    if question.suite.startswith("recall"):
        return re.findall(r"\d+", text) == [question.expected]
    if question.suite.startswith("arithmetic"):
        numbers = re.findall(r"\d+", text)
        return bool(numbers) and numbers[-1] == question.expected
    return text.strip() == question.expected


def judge(questions: list[Question], answers: list[Answer]) -> dict[str, Score]:
    scores: dict[str, Score] = {}
    for question, answer in zip(questions, answers, strict=True):
        score = scores.setdefault(question.suite, Score())
        score.count += 1
        score.ended += answer.ended
        if is_right(question, answer.text):
            score.right += 1
        elif len(score.wrong) < 5:
            score.wrong.append(
                {
                    "asked": question.messages[-1]["content"][-80:],
                    "expected": question.expected,
                    "got": answer.text[-120:],
                }
            )
    return scores


def report(rows: list[dict[str, Any]], json_path: Path | None) -> None:
    """Prints a table, and writes one JSON line per row where asked."""
    print(f"{'name':34} {'value':>9}  {'unit':12} {'limit':>7}  case")
    for row in rows:
        limit = "" if row.get("limit") is None else f"{row['limit']:.4g}"
        print(f"{row['name']:34} {row['value']:>9.4f}  {row['unit']:12} {limit:>7}  {row['case']}")
        bound = row["limit"]
        row["pct_of_limit"] = None if bound is None else 100 * row["value"] / bound
        row.setdefault("peer", None)
        row.setdefault("peer_value", None)
    if json_path:
        json_path.write_text("".join(json.dumps(row) + "\n" for row in rows))


LIMITS = {"recall_sentence_2100": 0.99, "arithmetic": 0.95}


def rows_of(scores: dict[str, Score], peer: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for suite, score in scores.items():
        case = f"{score.right} of {score.count}, {peer}"
        rows.append(
            {
                "name": f"{suite}_exact",
                "case": case,
                "value": score.right / score.count,
                "unit": "share",
                "limit": LIMITS.get(suite),
            }
        )
        rows.append(
            {
                "name": f"{suite}_ended",
                "case": f"{score.ended} of {score.count}, {peer}",
                "value": score.ended / score.count,
                "unit": "share",
                "limit": None,
            }
        )
    return rows
