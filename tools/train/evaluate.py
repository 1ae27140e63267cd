# SPDX-License-Identifier: Apache-2.0
"""Step 3: asks the held-out questions, through a server or through transformers.

    python tools/train/evaluate.py --base-url http://127.0.0.1:8000 --json server.jsonl
    python tools/train/evaluate.py --transformers models/tandem-small --json transformers.jsonl

The first form needs only Python's standard library. The second needs PyTorch and transformers, and
reports perplexity and the acceptance of the MTP layer's first draft as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import questions as q

ROOT = Path(__file__).resolve().parents[2]


def post(url: str, body: dict[str, Any], api_key: str | None, timeout_s: float) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        return json.load(response)


def model_name(base_url: str, api_key: str | None) -> str:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    request = urllib.request.Request(f"{base_url}/v1/models", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["data"][0]["id"]


def ask_server(args: argparse.Namespace, name: str, question: q.Question) -> q.Answer:
    body: dict[str, Any] = {
        "model": name,
        "messages": question.messages,
        "temperature": 0,
        "max_tokens": question.max_tokens,
    }
    if question.enable_thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": question.enable_thinking}
    reply = post(f"{args.base_url}/v1/chat/completions", body, args.api_key, args.timeout)
    choice = reply["choices"][0]
    return q.Answer(choice["message"]["content"] or "", choice["finish_reason"] == "stop")


def run_server(args: argparse.Namespace, asked: list[q.Question]) -> list[dict[str, Any]]:
    args.base_url = args.base_url.rstrip("/").removesuffix("/v1")
    name = model_name(args.base_url, args.api_key)
    start = time.monotonic()
    with ThreadPoolExecutor(args.concurrency) as pool:
        answers = list(pool.map(lambda question: ask_server(args, name, question), asked))
    scores = q.judge(asked, answers)
    show_wrong(scores)
    rows = q.rows_of(scores, f"server, model {name}")
    rows.append(
        {
            "name": "evaluation_seconds",
            "case": f"{len(asked)} questions, {args.concurrency} at a time",
            "value": time.monotonic() - start,
            "unit": "s",
            "limit": None,
        }
    )
    return rows


def show_wrong(scores: dict[str, q.Score]) -> None:
    for suite, score in scores.items():
        for wrong in score.wrong:
            print(f"wrong in {suite}: {json.dumps(wrong, ensure_ascii=False)}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--base-url", help="an OpenAI-compatible server")
    where.add_argument("--transformers", type=Path, help="a checkpoint folder")
    parser.add_argument("--eval", type=Path, default=ROOT / "models/tandem-small/eval")
    parser.add_argument(
        "--docs", type=Path, help="docs_heldout.jsonl, for the perplexity of documentation"
    )
    parser.add_argument("--limit", type=int, help="at most this many questions of each kind")
    parser.add_argument("--json", type=Path, help="write one JSON line per row")
    parser.add_argument("--api-key")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--device", default=None)
    args = parser.parse_args()
    asked = q.load(args.eval, args.limit)
    if args.base_url:
        rows = run_server(args, asked)
    else:
        import evaluate_torch

        scores, figures = evaluate_torch.run(args, asked)
        show_wrong(scores)
        rows = q.rows_of(scores, "transformers, bf16") + figures
    q.report(rows, args.json)
    missed = [r["name"] for r in rows if r.get("limit") is not None and r["value"] < r["limit"]]
    if missed:
        print("below the limit: " + ", ".join(missed), file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
