# SPDX-License-Identifier: Apache-2.0
"""Writes what `tokenizers` and transformers make of some strings and conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer

STRINGS: list[str] = [
    "",
    " ",
    "\n",
    "Hello, world!",
    "The code for falcon is 4821.",
    "it's we'll I'M they'RE don't",
    "47 + 38 = 85",
    "1234567890",
    "  two  spaces   three    four ",
    "tabs\tand\r\nline ends\r\n\r\n",
    "trailing space ",
    "\n\n  indented\n    more\n",
    "def f(x):\n    return x ** 2  # square\n",
    "caf\u00e9 cafe\u0301 \u212b \ufb01",
    "stra\u00dfe \u00dc\u00d6\u00c4",
    "\u65e5\u672c\u8a9e \u4e2d\u6587 \ud55c\uad6d\uc5b4",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f642 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "\u00a0no-break\u2003em\u3000wide",
    "\u017fs '\u017f",
    "a\u0300\u0316b",
    "\x00\x01\x7f",
    "\ufeffbom",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_end|",
    "<|endoftext|><|endoftext|>",
    "x<think>y</think>z",
    '<tool_call>{"a": 1}</tool_call>',
    "< |im_end| >",
    "<|im_start|><|im_start|>",
    "</think",
    "...!!!???",
    "http://example.org/a?b=c&d=%20",
    "a" * 100,
    " " * 70,
    "\n" * 9,
    "ab" * 60,
    "\u00b2\u00bd\u2167",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
]

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a \u00abcity\u00bb",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
_CALL = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}

CONVERSATIONS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "Hi"}]},
    {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True},
    {
        "messages": [{"role": "user", "content": "Hi"}],
        "add_generation_prompt": True,
        "enable_thinking": False,
    },
    {
        "messages": [{"role": "user", "content": "Hi"}],
        "add_generation_prompt": True,
        "enable_thinking": True,
    },
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "My name is Ana."},
            {"role": "assistant", "content": "Nice to meet you, Ana."},
            {"role": "user", "content": "What is my name?"},
        ],
        "add_generation_prompt": True,
        "enable_thinking": False,
    },
    {
        "messages": [
            {"role": "user", "content": "1 + 1"},
            {"role": "assistant", "content": "<think>\neasy\n</think>\n\n2"},
            {"role": "user", "content": "2 + 2"},
            {"role": "assistant", "content": "4", "reasoning_content": "also easy"},
        ]
    },
    {
        "messages": [
            {"role": "user", "content": "Weather in Oslo?"},
            {"role": "assistant", "content": None, "tool_calls": [_CALL]},
            {"role": "tool", "content": "Oslo: 12"},
            {"role": "tool", "content": "Oslo: 13"},
        ],
        "tools": [_TOOL],
        "add_generation_prompt": True,
    },
    {
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "U"},
            {"role": "assistant", "content": "calling", "tool_calls": [_CALL, _CALL]},
        ],
        "tools": [_TOOL],
    },
    {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "part one, "},
                    {"type": "text", "text": "part two"},
                ],
            }
        ],
        "add_generation_prompt": True,
    },
    {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "system", "content": "late"},
            {"role": "user", "content": "b"},
        ]
    },
    {
        "messages": [{"role": "user", "content": "ends <|im_end|> early \U0001f642"}],
        "add_generation_prompt": True,
    },
]


def write(model: Path, path: Path) -> None:
    plain = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer = AutoTokenizer.from_pretrained(model)
    strings = []
    for text in STRINGS:
        ids = plain.encode(text, add_special_tokens=False).ids
        if tokenizer(text, add_special_tokens=False)["input_ids"] != ids:
            raise RuntimeError(f"tokenizers and transformers differ on {text!r}")
        strings.append(
            {
                "text": text,
                "ids": ids,
                "decoded": plain.decode(ids, skip_special_tokens=False),
                "decoded_skip_special": plain.decode(ids, skip_special_tokens=True),
            }
        )
    conversations = []
    for conversation in CONVERSATIONS:
        variables = {k: v for k, v in conversation.items() if k != "messages"}
        rendered = tokenizer.apply_chat_template(
            conversation["messages"], tokenize=False, **variables
        )
        ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
        conversations.append({**conversation, "rendered": rendered, "ids": ids})
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"strings": strings, "conversations": conversations}
    path.write_text(json.dumps(content, ensure_ascii=True, indent=1) + "\n")
