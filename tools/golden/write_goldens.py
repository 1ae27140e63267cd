# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden: what transformers computes on the small model and on tiny random ones.

    python tools/golden/write_goldens.py

Needs PyTorch, transformers and the checkpoint in models/tandem-small; runs on a CPU. The tests that
compare with these files need neither. README.md describes the tensors.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import tiny_checkpoints
import tokenizer_goldens
import torch
from float64_mode import Float64Mode, upcast
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
GREEDY_STEPS = 256

sys.path.insert(0, str(ROOT / "tools" / "train"))
import export  # noqa: E402  (the training model is the reference for the MTP layer)


def load(directory: Path) -> Any:
    """Eager attention and an eager loop over the experts: the plainest code transformers has."""
    return AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.bfloat16, attn_implementation="eager", experts_implementation="eager"
    ).eval()


def greedy(model: Any, prompt: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the prompt's logits [n, V], the greedy ids and each step's gap of the best two.

    It goes on past an end-of-turn token: the numbers after it are as good a test as those before.
    """
    out = model(torch.tensor([prompt]), use_cache=True)
    logits = out.logits[0]
    ids, gaps = [], []
    last = logits[-1]
    for _ in range(GREEDY_STEPS):
        top = last.double().topk(2)
        ids.append(int(top.indices[0]))
        gaps.append(float(top.values[0] - top.values[1]))
        out = model(torch.tensor([[ids[-1]]]), past_key_values=out.past_key_values, use_cache=True)
        last = out.logits[0, -1]
    return logits, torch.tensor(ids), torch.tensor(gaps, dtype=torch.float32)


@torch.inference_mode()
def goldens_of(
    directory: Path, prompts: list[tuple[list[int], bool]], wide: torch.dtype, with_mtp: bool
) -> dict[str, Tensor]:
    """`prompts` pairs ids with whether the logits of all positions are kept, or only the last."""
    tensors: dict[str, Tensor] = {}
    narrow_model = load(directory)
    wide_model = upcast(load(directory))
    drafter = export.read_checkpoint(directory, torch.float64, "cpu") if with_mtp else None
    for k, (prompt, keep_all) in enumerate(prompts):
        rows = slice(None) if keep_all else slice(-1, None)
        tensors[f"prompts.{k}"] = torch.tensor(prompt)
        with Float64Mode():
            logits, ids, gaps = greedy(wide_model, prompt)
        if logits.dtype != torch.float64:
            raise RuntimeError(f"expected float64 logits, got {logits.dtype}")
        tensors[f"logits_f64.{k}"] = logits[rows].to(wide)
        tensors[f"greedy_f64.{k}"], tensors[f"gap_f64.{k}"] = ids, gaps
        if drafter is not None:
            shifted = prompt[1:] + [int(ids[0])]
            out = drafter(torch.tensor([prompt]), torch.tensor([shifted]))
            worst = (out.logits[0] - logits).abs().max().item()
            if worst > 1e-9:
                raise RuntimeError(f"the training model and transformers differ by {worst}")
            tensors[f"mtp_logits_f64.{k}"] = out.mtp_logits[0][rows].to(wide)
        logits, ids, gaps = greedy(narrow_model, prompt)
        tensors[f"logits_bf16.{k}"] = logits[rows]
        tensors[f"greedy_bf16.{k}"], tensors[f"gap_bf16.{k}"] = ids, gaps
        same = (
            (tensors[f"greedy_bf16.{k}"] == tensors[f"greedy_f64.{k}"])
            .int()
            .cumprod(0)
            .sum()
            .item()
        )
        print(
            f"{directory.name} prompt {k}: {len(prompt)} tokens, bf16 equals f64 for {same} steps, "
            f"least gap {tensors[f'gap_f64.{k}'].min():.3g}",
            flush=True,
        )
    return tensors


def small_model_prompts(directory: Path) -> list[tuple[list[int], bool]]:
    tokenizer = AutoTokenizer.from_pretrained(directory)

    def chat(messages: list[dict[str, str]]) -> list[int]:
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    lines = (directory / "eval" / "recall.jsonl").read_text().splitlines()
    recall = json.loads(lines[0])["messages"]
    talk = json.loads((directory / "eval" / "chat.jsonl").read_text().splitlines()[0])["messages"]
    story = tokenizer("In Lisbon lived a baker called Nora", add_special_tokens=False)["input_ids"]
    return [
        (chat([{"role": "user", "content": "What is 47 + 38?"}]), True),
        (story, True),
        (chat(talk), False),
        (chat(recall), False),
    ]


def tiny_prompts(name: str) -> list[tuple[list[int], bool]]:
    vocab = tiny_checkpoints.CONFIGS[name]["vocab_size"]
    generator = torch.Generator().manual_seed(7)
    lengths = [1, 17, 70, 200]
    return [(torch.randint(0, vocab, (n,), generator=generator).tolist(), n < 100) for n in lengths]


def write(directory: Path, tensors: dict[str, Tensor]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    save_file(
        {n: t.contiguous() for n, t in sorted(tensors.items())}, directory / "golden.safetensors"
    )
    (directory / "golden.safetensors").chmod(0o644)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "tandem-small")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "golden")
    parser.add_argument("--only", help="one of the names under tests/golden")
    args = parser.parse_args()
    for name in tiny_checkpoints.CONFIGS:
        if args.only not in (None, name):
            continue
        tiny_checkpoints.write(name, args.out / name)
        write(
            args.out / name, goldens_of(args.out / name, tiny_prompts(name), torch.float64, False)
        )
    if args.only not in (None, "tandem-small"):
        return
    tokenizer_goldens.write(args.model, args.out / "tandem-small" / "tokenizer_golden.json")
    prompts = small_model_prompts(args.model)
    write(args.out / "tandem-small", goldens_of(args.model, prompts, torch.float32, True))


if __name__ == "__main__":
    main()
