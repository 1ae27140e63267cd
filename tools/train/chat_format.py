# SPDX-License-Identifier: Apache-2.0
"""The chat format: the shipped template, and the same format cut into training pieces.

Training needs to know which tokens are an answer. Each piece below ends where the tokenizer
splits anyway (at an added token, or at a newline before a letter or digit), so that tokenizing the
pieces one by one gives the ids of the whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox

TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text()

EMPTY_THINK = "<think>\n\n</think>\n\n"
PLAIN_WEIGHT = 0.3
ANSWER_WEIGHT = 4.0

Piece = tuple[str, float]  # text, loss weight of its tokens


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def render(messages: list[dict[str, Any]], **variables: Any) -> str:
    """Renders the shipped template the way transformers does."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = _raise
    return environment.from_string(TEMPLATE).render(messages=messages, **variables)


@dataclass
class Turn:
    role: str
    text: str
    weight: float = ANSWER_WEIGHT  # Only for assistant turns: other roles are always plain.
    reasoning: str = ""


@dataclass
class Chat:
    turns: list[Turn] = field(default_factory=list)
    system: str = ""
    empty_think_last: bool = False  # The last answer follows an empty think block.

    def pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        if self.system:
            pieces.append((f"<|im_start|>system\n{self.system}<|im_end|>\n", PLAIN_WEIGHT))
        for index, turn in enumerate(self.turns):
            last = index == len(self.turns) - 1
            if turn.role != "assistant":
                pieces.append((f"<|im_start|>{turn.role}\n{turn.text}<|im_end|>\n", PLAIN_WEIGHT))
                continue
            pieces.append(("<|im_start|>assistant\n", PLAIN_WEIGHT))
            if last and turn.reasoning:
                pieces.append((f"<think>\n{turn.reasoning}\n</think>\n\n", turn.weight))
            elif last and self.empty_think_last:
                pieces.append((EMPTY_THINK, PLAIN_WEIGHT))
            pieces.append((f"{turn.text}<|im_end|>", turn.weight))
            pieces.append(("\n", PLAIN_WEIGHT))
        return pieces

    def messages(self) -> list[dict[str, str]]:
        head = [{"role": "system", "content": self.system}] if self.system else []
        return head + [{"role": t.role, "content": t.text} for t in self.turns]
