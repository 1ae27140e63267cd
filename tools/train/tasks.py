# SPDX-License-Identifier: Apache-2.0
"""The tasks of the training data: recall, arithmetic, copying, small talk, tool calls.

`Source.heldout` selects what is only ever evaluated: reserved codes, reserved pairs of summands
and documents that are not in the training split.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from random import Random

import prose
import words
from chat_format import Chat, Turn

# Characters per token of either kind of text; they only steer how long contexts get.
DOCUMENT_CHARS = 3.3
STORY_CHARS = 4.1
FACT_TOKENS = 14


@dataclass
class Source:
    """Where paragraphs come from, and whether held-out numbers are drawn."""

    paragraphs: list[str]
    heldout: bool = False


def _reserved(text: str, one_in: int) -> bool:
    return int(hashlib.sha1(text.encode()).hexdigest()[:8], 16) % one_in == 0


_CODES = [f"{n:04d}" for n in range(10_000)]
_CODES_OF = {
    held: [c for c in _CODES if _reserved("code" + c, 20) == held] for held in (False, True)
}

Sum = tuple[int, str, int]
_SUMS: list[Sum] = [
    (a, op, b) for a in range(10, 100) for b in range(10, 100) for op in "+-" if op == "+" or a >= b
]
_SUMS_OF = {
    held: [s for s in _SUMS if _reserved(f"{s[0]}{s[1]}{s[2]}", 10) == held]
    for held in (False, True)
}


# ---- recall --------------------------------------------------------------------------------------

_FACTS = [
    "The code for {key} is {code}.",
    "Remember that the code for {key} is {code}.",
    "Note: the code for {key} is {code}.",
]
_QUESTIONS = [
    "What is the code for {key}?",
    "Tell me the code for {key}.",
    "Which code belongs to {key}?",
    "I need the code for {key}.",
]
_TERSE = " Answer with the code only."
_HEADS = ["Read this text.", "Here are some notes.", "Keep this text in mind.", ""]


def filler(rng: Random, source: Source, tokens: int) -> list[str]:
    """Paragraphs of documentation and stories (stories only where the source has no documents)."""
    out: list[str] = []
    total = 0.0
    while total < tokens:
        use_document = source.paragraphs and rng.random() < 0.6
        text = rng.choice(source.paragraphs) if use_document else prose.paragraph(rng)
        chars_per_token = DOCUMENT_CHARS if use_document else STORY_CHARS
        text = text[: max(120, int((tokens - total) * chars_per_token))]
        out.append(text)
        total += len(text) / chars_per_token + 1
    return out


def recall(
    rng: Random,
    source: Source,
    tokens: int,
    questions: int | None = None,
    codes: int | None = None,
    terse: bool | None = None,
) -> Chat:
    """A context with hidden codes, then questions about some of them, in several turns."""
    code_count = codes or rng.randint(2, 12)
    keys = rng.sample(words.KEYS, code_count)
    values = rng.sample(_CODES_OF[source.heldout], code_count)
    parts = filler(rng, source, tokens - FACT_TOKENS * code_count)
    for key, code in zip(keys, values, strict=True):
        fact = rng.choice(_FACTS).format(key=key, code=code)
        if parts and rng.random() < 0.5:
            index = rng.randrange(len(parts))
            parts[index] = (
                f"{parts[index]} {fact}" if rng.random() < 0.5 else f"{fact} {parts[index]}"
            )
        else:
            parts.insert(rng.randint(0, len(parts)), fact)
    head = rng.choice(_HEADS)
    context = "\n\n".join(([head] if head else []) + parts)
    order = list(range(code_count))
    rng.shuffle(order)
    chat = Chat(empty_think_last=rng.random() < 0.5)
    in_system = rng.random() < 0.2
    if in_system:
        chat.system = context
    for number, index in enumerate(order[: questions or code_count]):
        question = rng.choice(_QUESTIONS).format(key=keys[index])
        short = rng.random() < 0.4 if terse is None else terse
        if short:
            question += _TERSE
        if number == 0 and not in_system:
            question = f"{context}\n\n{question}"
        answer = values[index] if short else f"The code for {keys[index]} is {values[index]}."
        chat.turns += [Turn("user", question), Turn("assistant", answer)]
    return chat


# ---- arithmetic ----------------------------------------------------------------------------------


def shown_work(a: int, op: str, b: int) -> tuple[str, str]:
    """Returns the digit-wise work and the result: ones, then tens with carry or borrow."""
    a1, a0, b1, b0 = a // 10, a % 10, b // 10, b % 10
    if op == "+":
        carry = (a0 + b0) // 10
        work = f"{a0} + {b0} = {a0 + b0}, carry {carry}. {a1} + {b1} + {carry} = {a1 + b1 + carry}."
        return work, str(a + b)
    borrow = int(a0 < b0)
    top = a0 + 10 * borrow
    work = (
        f"{top} - {b0} = {top - b0}, borrow {borrow}. {a1} - {b1} - {borrow} = {a1 - b1 - borrow}."
    )
    return work, str(a - b)


def sum_turns(rng: Random, heldout: bool) -> list[Turn]:
    a, op, b = rng.choice(_SUMS_OF[heldout])
    asked = [
        f"What is {a} {op} {b}?",
        f"Compute {a} {op} {b}.",
        f"{a} {op} {b} = ?",
        f"Add {a} and {b}." if op == "+" else f"Subtract {b} from {a}.",
    ]
    work, result = shown_work(a, op, b)
    return [Turn("user", rng.choice(asked)), Turn("assistant", f"{work} {a} {op} {b} = {result}.")]


def arithmetic(rng: Random, source: Source) -> Chat:
    chat = Chat(empty_think_last=rng.random() < 0.5)
    for _ in range(rng.randint(1, 6)):
        chat.turns += sum_turns(rng, source.heldout)
    if rng.random() < 0.15:
        # The soft switch asks for the work inside a think block.
        asked, answered = chat.turns[-2:]
        work, _, result = answered.text.rpartition(". ")
        chat.turns[-2:] = [
            Turn("user", f"{asked.text} /think"),
            Turn("assistant", result, reasoning=f"{work}."),
        ]
    return chat


# ---- copying -------------------------------------------------------------------------------------


def copying(rng: Random, source: Source) -> Chat:
    chat = Chat(empty_think_last=rng.random() < 0.5)
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(4)
        if kind == 0:
            text = " ".join(rng.choices(words.KEYS, k=rng.randint(3, 40)))
        elif kind == 1:
            text = rng.choice(source.paragraphs)[:400].strip()
        elif kind == 2:
            text = " ".join(rng.choices(_CODES_OF[source.heldout], k=rng.randint(1, 12)))
        else:
            text = prose.paragraph(rng)
        ask = rng.choice(["Repeat: ", "Copy this text: ", "Say this again: "])
        chat.turns += [Turn("user", ask + text), Turn("assistant", text, weight=1.0)]
    return chat


# ---- small talk ----------------------------------------------------------------------------------

_SELF = "I am tandem-small, a very small language model that ships with Tandem."


def _knowledge(rng: Random) -> tuple[str, str]:
    kind = rng.randrange(8)
    if kind == 0:
        country, city = rng.choice(words.CAPITALS)
        return f"What is the capital of {country}?", f"The capital of {country} is {city}."
    if kind == 1:
        word, other = rng.choice(words.OPPOSITES)
        return f"What is the opposite of {word}?", f"The opposite of {word} is {other}."
    if kind == 2:
        i = rng.randrange(7)
        return (
            f"Which day comes after {words.DAYS[i]}?",
            f"After {words.DAYS[i]} comes {words.DAYS[(i + 1) % 7]}.",
        )
    if kind == 3:
        i = rng.randrange(12)
        return (
            f"Which month comes before {words.MONTHS[i]}?",
            f"Before {words.MONTHS[i]} comes {words.MONTHS[i - 1]}.",
        )
    if kind == 4:
        first = rng.randint(1, 20)
        last = first + rng.randint(3, 12)
        return (
            f"Count from {first} to {last}.",
            ", ".join(str(n) for n in range(first, last + 1)) + ".",
        )
    if kind == 5:
        items = rng.sample(words.KEYS, rng.randint(3, 7))
        return f"Reverse this list: {', '.join(items)}.", f"{', '.join(reversed(items))}."
    if kind == 6:
        items = rng.sample(words.KEYS, rng.randint(3, 7))
        which, item = rng.choice([("first", items[0]), ("last", items[-1])])
        return (
            f"Which word is {which} in this list: {', '.join(items)}?",
            f"The {which} word is {item}.",
        )
    return "List the days of the week.", ", ".join(words.DAYS) + "."


def small_talk(
    rng: Random, source: Source, exchanges: int | None = None, ask_back: bool = False
) -> Chat:
    """Several turns in which the user tells things about himself and later asks for them."""
    chat = Chat(empty_think_last=rng.random() < 0.5)
    persona = ""
    if rng.random() < 0.3:
        persona = rng.choice(words.NAMES)
        chat.system = rng.choice(
            [f"Your name is {persona}.", f"You are {persona}, a helpful assistant."]
        )
    elif rng.random() < 0.3:
        chat.system = "You are a helpful assistant."
    known: dict[str, str] = {}
    for _ in range(exchanges or rng.randint(1, 7)):
        chat.turns += _exchange(rng, source, persona, known)
    if ask_back and known:
        what = rng.choice(sorted(known))
        chat.turns += _ask_back(what, known[what])
    return chat


def _ask_back(what: str, value: str) -> list[Turn]:
    if what == "name":
        return [Turn("user", "What is my name?"), Turn("assistant", f"Your name is {value}.")]
    return [
        Turn("user", f"What is my favorite {what}?"),
        Turn("assistant", f"Your favorite {what} is {value}."),
    ]


def _exchange(rng: Random, source: Source, persona: str, known: dict[str, str]) -> list[Turn]:
    roll = rng.random()
    if roll < 0.15:
        name = rng.choice(words.NAMES)
        known["name"] = name
        said = rng.choice(
            [f"Hi, my name is {name}.", f"Hello, I am {name}.", f"My name is {name}."]
        )
        return [Turn("user", said), Turn("assistant", f"Nice to meet you, {name}.")]
    if roll < 0.35:
        what, options = rng.choice(
            [
                ("color", words.COLORS),
                ("food", words.FOODS),
                ("animal", words.ANIMALS),
                ("city", words.CITIES),
            ]
        )
        value = rng.choice(options)
        known[what] = value
        return [
            Turn("user", f"My favorite {what} is {value}."),
            Turn("assistant", f"I will remember that your favorite {what} is {value}."),
        ]
    if roll < 0.55 and known:
        what = rng.choice(sorted(known))
        return _ask_back(what, known[what])
    if roll < 0.62:
        answer = f"I am {persona}." if persona else _SELF
        return [
            Turn("user", rng.choice(["Who are you?", "What are you?"])),
            Turn("assistant", answer),
        ]
    if roll < 0.67:
        said, answer = rng.choice(
            [
                ("Hello!", "Hello! How can I help you?"),
                ("Hi", "Hello! How can I help you?"),
                ("Thank you!", "You are welcome."),
                ("Thanks.", "You are welcome."),
                ("Goodbye.", "Goodbye!"),
                ("Bye!", "Goodbye!"),
            ]
        )
        return [Turn("user", said), Turn("assistant", answer)]
    if roll < 0.75:
        animal = rng.choice(words.ANIMALS)
        return [
            Turn("user", f"Tell me a story about the {animal}."),
            Turn("assistant", prose.story(rng, animal), weight=1.0),
        ]
    if roll < 0.82:
        return sum_turns(rng, source.heldout)
    question, answer = _knowledge(rng)
    return [Turn("user", question), Turn("assistant", answer)]


# ---- tools ---------------------------------------------------------------------------------------

_TOOLS = {
    "get_weather": ("city", "Weather of a city", words.CITIES, "What is the weather in {x}?"),
    "get_time": ("city", "Local time of a city", words.CITIES, "What time is it in {x}?"),
    "find_user": ("name", "Looks up a user", words.NAMES, "Find the user {x}."),
    "get_stock": ("item", "Stock of an item", words.THINGS, "How many of the item {x} are there?"),
}


def tool_call(rng: Random, source: Source) -> tuple[Chat, list[dict[str, object]]]:
    """One question that needs a tool; the answer is the call, then what the tool said."""
    names = rng.sample(sorted(_TOOLS), rng.randint(1, 3))
    tools: list[dict[str, object]] = [
        {
            "type": "function",
            "function": {
                "name": n,
                "description": _TOOLS[n][1],
                "parameters": {
                    "type": "object",
                    "properties": {_TOOLS[n][0]: {"type": "string"}},
                    "required": [_TOOLS[n][0]],
                },
            },
        }
        for n in names
    ]
    chat = Chat()
    name = rng.choice(names)
    argument, _, options, question = _TOOLS[name]
    value = rng.choice(options)
    call = json.dumps({"name": name, "arguments": {argument: value}})
    result = f"{value}: {rng.randint(1, 99)}"
    chat.turns = [
        Turn("user", question.format(x=value)),
        Turn("assistant", f"<tool_call>\n{call}\n</tool_call>"),
        Turn("user", f"\n<tool_response>\n{result}\n</tool_response>".lstrip("\n")),
        Turn("assistant", f"The answer is {result}."),
    ]
    return chat, tools
