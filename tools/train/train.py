# SPDX-License-Identifier: Apache-2.0
"""Step 2: trains the model and its MTP layer together, then exports a Hugging Face checkpoint.

python tools/train/train.py --work .cache/train --model models/tandem-small
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

import batches
import export
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model import ModelConfig, TandemSmall

MTP_LOSS = 0.3
BALANCE_LOSS = 0.01
LEARNING_RATE = 3e-3
WARMUP_STEPS = 150
WEIGHT_DECAY = 0.1


def weighted_loss(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the weighted mean loss, and the accuracy on answer tokens (weight >= 4)."""
    flat = logits.flatten(0, 1).float()
    loss = F.cross_entropy(flat, target.flatten(), reduction="none")
    w = weight.flatten().float()
    answer = (w >= 4).float()
    hit = (flat.detach().argmax(-1) == target.flatten()).float()
    return (loss * w).sum() / w.sum(), (hit * answer).sum() / answer.sum().clamp(min=1)


class Trainee(nn.Module):
    """Model and losses in one graph, so that torch.compile fuses the losses too."""

    def __init__(self, model: TandemSmall) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        length = ids.shape[1] - 2
        out = self.model(ids[:, :length], ids[:, 1 : length + 1])
        main, accuracy = weighted_loss(
            out.logits, ids[:, 1 : length + 1], weights[:, 1 : length + 1]
        )
        mtp, mtp_accuracy = weighted_loss(out.mtp_logits, ids[:, 2:], weights[:, 2:])
        loss = main + MTP_LOSS * mtp + BALANCE_LOSS * out.balance
        figures = torch.stack(
            [main.detach(), mtp.detach(), out.balance.detach(), accuracy, mtp_accuracy]
        )
        return loss, figures, out.shares.detach()


def optimizer_of(model: nn.Module, device: str) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.95), fused=device == "cuda")


def learning_rate(step: int, progress: float) -> float:
    """Linear warm-up, then cosine down to a hundredth."""
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    return LEARNING_RATE * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def train(args: argparse.Namespace) -> TandemSmall:
    device = args.device
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    model = TandemSmall(ModelConfig()).to(device)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} parameters, {args.steps} steps of {args.batch} x {args.length}, {device}")
    trainee: nn.Module = Trainee(model)
    if args.compile:
        trainee = torch.compile(trainee)
    optimizer = optimizer_of(model, device)
    spec = batches.BatchSpec(
        str(args.work), str(args.model / "tokenizer.json"), args.batch, args.length, args.seed
    )
    log = (args.log or args.work / "train_log.jsonl").open("w")
    start = time.monotonic()
    first_done = start
    for step, (ids, weights) in enumerate(batches.stream(spec, args.steps, args.workers)):
        elapsed = time.monotonic() - start
        # The time limit ends the schedule early on a slow machine, but in an orderly way.
        progress = max(step / args.steps, elapsed / args.max_seconds)
        if progress >= 1:
            print(f"stopped by the time limit at step {step}")
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, progress)
        ids_t = torch.from_numpy(ids.astype("int32")).to(device, non_blocking=True).long()
        weights_t = torch.from_numpy(weights).to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss, figures, shares = trainee(ids_t, weights_t)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == 0:
            first_done = time.monotonic()
        if step % args.every == 0 or step == args.steps - 1:
            main, mtp, balance, accuracy, mtp_accuracy = figures.tolist()
            now = time.monotonic()
            rate = step * ids.shape[0] * args.length / max(1e-9, now - first_done)
            row = {
                "step": step,
                "loss": round(main, 4),
                "mtp_loss": round(mtp, 4),
                "balance": round(balance, 4),
                "answer_accuracy": round(accuracy, 4),
                "mtp_answer_accuracy": round(mtp_accuracy, 4),
                "least_used_expert": round(shares.min().item(), 4),
                "seconds": round(now - start, 1),
                "tokens_per_s": round(rate),
            }
            log.write(json.dumps(row) + "\n")
            log.flush()
            print(row, flush=True)
            if not math.isfinite(main):
                raise RuntimeError(f"the loss is not finite at step {step}")
    log.close()
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".cache/train"))
    parser.add_argument("--model", type=Path, default=Path("models/tandem-small"))
    parser.add_argument(
        "--out", type=Path, help="where the checkpoint is written (default: --model)"
    )
    parser.add_argument("--steps", type=int, default=5400)
    parser.add_argument("--max-seconds", type=float, default=float("inf"))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available()
    )
    parser.add_argument("--log", type=Path)
    args = parser.parse_args()
    model = train(args)
    export.write_checkpoint(model, args.out or args.model, tokenizer_dir=args.model)


if __name__ == "__main__":
    main()
