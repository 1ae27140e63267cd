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
    rows = {row["name"]: row for row in map(json.loads, report.read_text().splitlines())}
    assert rows["recall"]["value"] >= 99
    assert rows["arithmetic"]["value"] >= 95
    assert rows["chat"]["value"] >= 95
