# SPDX-License-Identifier: Apache-2.0
"""The evaluation through transformers: greedy answers, perplexity, acceptance of MTP drafts."""

from __future__ import annotations

import argparse
import math
from typing import Any

import export
import questions as q
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

BATCH = 64
WINDOW = 2048


def prompt_ids(tokenizer: Any, question: q.Question) -> list[int]:
    variables = (
        {} if question.enable_thinking is None else {"enable_thinking": question.enable_thinking}
    )
    text = tokenizer.apply_chat_template(
        question.messages, tokenize=False, add_generation_prompt=True, **variables
    )
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@torch.inference_mode()
def greedy(
    model: Any, tokenizer: Any, prompts: list[list[int]], max_tokens: int
) -> list[list[int]]:
    """Left-padded batches; each answer is cut after its <|im_end|>, which stays in."""
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    width = max(map(len, prompts))
    pad = tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts], device=model.device)
    mask = torch.tensor(
        [[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device
    )
    out = model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=max_tokens,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        eos_token_id=end,
        pad_token_id=pad,
    )
    answers = []
    for row in out[:, width:].tolist():
        answers.append(row[: row.index(end) + 1] if end in row else row)
    return answers


@torch.inference_mode()
def perplexity(model: Any, tokenizer: Any, texts: list[str]) -> tuple[float, int]:
    loss = 0.0
    count = 0
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][:WINDOW]
        if len(ids) < 2:
            continue
        row = torch.tensor([ids], device=model.device)
        logits = model(row).logits[0, :-1].float()
        loss += torch.nn.functional.cross_entropy(logits, row[0, 1:], reduction="sum").item()
        count += len(ids) - 1
    return math.exp(loss / count), count


@torch.inference_mode()
def acceptance(
    model: Any, pairs: list[tuple[list[int], list[int]]], device: str
) -> tuple[int, int]:
    """Of the greedy tokens after the first, how many does the MTP layer's first draft name?

    Row t of the draft sees the hidden state of token t and token t+1, and guesses token t+2.
    """
    hit = 0
    count = 0
    for prompt, answer in pairs:
        if len(answer) < 2:
            continue
        ids = torch.tensor([prompt + answer], device=device)
        out = model(ids[:, :-1], ids[:, 1:])
        first = len(prompt) - 1  # This row guesses the answer's second token.
        guess = out.mtp_logits[0, first : first + len(answer) - 1].argmax(-1)
        hit += int((guess == ids[0, len(prompt) + 1 :]).sum())
        count += len(answer) - 1
    return hit, count


def run(
    args: argparse.Namespace, asked: list[q.Question]
) -> tuple[dict[str, q.Score], list[dict[str, Any]]]:
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(args.transformers)
    model = (
        AutoModelForCausalLM.from_pretrained(args.transformers, dtype=torch.bfloat16)
        .to(device)
        .eval()
    )
    drafter = export.read_checkpoint(args.transformers, torch.bfloat16, device)
    prompts = [prompt_ids(tokenizer, question) for question in asked]
    replies: list[list[int]] = [[] for _ in asked]
    order = sorted(range(len(asked)), key=lambda i: (asked[i].suite, len(prompts[i])))
    for start in range(0, len(order), BATCH):
        chunk = order[start : start + BATCH]
        limit = max(asked[i].max_tokens for i in chunk)
        for i, reply in zip(
            chunk, greedy(model, tokenizer, [prompts[i] for i in chunk], limit), strict=True
        ):
            replies[i] = reply
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    answers = [
        q.Answer(tokenizer.decode(r, skip_special_tokens=True), bool(r) and r[-1] == end)
        for r in replies
    ]
    figures = [
        acceptance_row(drafter, asked, prompts, replies, device, kind)
        for kind in ("recall", "arithmetic", "chat", "")
    ]
    texts = [item["text"] for item in q.lines_of(args.eval / "heldout.jsonl")]
    figures.append(open_ended_row(model, drafter, tokenizer, texts, device))
    figures.append(perplexity_row(model, tokenizer, "generated stories", texts))
    if args.docs:
        docs = [item["text"] for item in q.lines_of(args.docs)]
        figures.append(perplexity_row(model, tokenizer, "documentation", docs))
    return q.judge(asked, answers), figures


def _acceptance_figure(kind: str, hit: int, count: int, limit: float | None) -> dict[str, Any]:
    return {
        "name": f"mtp_first_draft_acceptance_{kind}",
        "case": f"{hit} of {count} greedy tokens, PyTorch bf16",
        "value": hit / max(1, count),
        "unit": "share",
        "limit": limit,
    }


def acceptance_row(
    drafter: Any,
    asked: list[q.Question],
    prompts: list[list[int]],
    replies: list[list[int]],
    device: str,
    kind: str,
) -> dict[str, Any]:
    pairs = [
        (p, r) for a, p, r in zip(asked, prompts, replies, strict=True) if a.suite.startswith(kind)
    ]
    hit, count = acceptance(drafter, pairs, device)
    return _acceptance_figure(kind or "all_questions", hit, count, None if kind else 0.70)


def open_ended_row(
    model: Any, drafter: Any, tokenizer: Any, texts: list[str], device: str
) -> dict[str, Any]:
    """Continues held-out stories freely: harder to draft than answers in a fixed form."""
    prompts = [tokenizer(text, add_special_tokens=False)["input_ids"][:64] for text in texts]
    replies = greedy(model, tokenizer, prompts, 128)
    hit, count = acceptance(drafter, list(zip(prompts, replies, strict=True)), device)
    return _acceptance_figure("stories", hit, count, None)


def perplexity_row(model: Any, tokenizer: Any, what: str, texts: list[str]) -> dict[str, Any]:
    value, count = perplexity(model, tokenizer, texts)
    return {
        "name": "perplexity_per_token",
        "case": f"{what}, held out, {count} tokens, bf16",
        "value": value,
        "unit": "perplexity",
        "limit": None,
    }
