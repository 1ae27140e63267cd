# SPDX-License-Identifier: Apache-2.0
"""The small model's evaluation through the server: a broken engine shows here (label slow)."""

import json
import subprocess
import sys

from server import ROOT


def test_scores_hold(server, tmp_path):
    report = tmp_path / "evaluation.jsonl"
    subprocess.run([sys.executable, str(ROOT / "tools/train/evaluate.py"), "--base-url", server.url, "--json",
                    str(report)], check=True, timeout=1500)
    share = {row["name"]: row["value"] for row in map(json.loads, report.read_text().splitlines())}
    assert share["recall_sentence_2100_exact"] >= 0.99
    assert share["recall_sentence_3600_exact"] >= 0.99
    assert share["arithmetic_exact"] >= 0.95
    # transformers and the float64 reference get 98 of 100; the two others are the model's own mistakes.
    assert share["chat_exact"] >= 0.98
    for name, value in share.items():
        if name.endswith("_ended"):
            assert value == 1.0, name
