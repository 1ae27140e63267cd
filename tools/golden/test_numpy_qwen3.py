# SPDX-License-Identifier: Apache-2.0
"""Holds the NumPy reference to the goldens that transformers wrote. Needs numpy and pytest only.

python -m pytest tools/golden
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import safetensors_numpy  # noqa: E402
from numpy_qwen3 import Qwen3  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
NAMES = ["tiny-moe-1kv", "tiny-dense", "tiny-dense-untied-yarn", "tandem-small"]
CASES = [(name, k) for name in NAMES for k in range(4)]

# Both sides compute in float64; what is left is the order of sums, and, where the golden is stored
# as float32, that rounding (2^-24 of the value).
F64_BOUND = 1e-9
F32_BOUND = 2.0**-24 + F64_BOUND


class Loaded:
    def __init__(self, name: str) -> None:
        directory = ROOT / "models" / name if name == "tandem-small" else GOLDEN / name
        self.model = Qwen3.load(directory)
        self.golden = safetensors_numpy.read_file(GOLDEN / name / "golden.safetensors")
        self.bound = F32_BOUND if name == "tandem-small" else F64_BOUND


_loaded: dict[str, Loaded] = {}


def load(name: str) -> Loaded:
    if name not in _loaded:
        _loaded[name] = Loaded(name)
    return _loaded[name]


def assert_close(name: str, got: np.ndarray, wanted: np.ndarray, bound: float) -> None:
    """The bound is relative to the largest logit of the row."""
    error = np.abs(got - wanted).max(axis=-1) / np.abs(wanted).max(axis=-1)
    assert error.max() <= bound, f"{name}: worst row {error.argmax()} is off by {error.max():.3g}"


@pytest.mark.parametrize(("name", "k"), CASES)
def test_logits(name: str, k: int) -> None:
    loaded = load(name)
    wanted = loaded.golden[f"logits_f64.{k}"]
    got = loaded.model.logits(loaded.golden[f"prompts.{k}"])
    assert_close(name, got[-len(wanted) :], wanted.astype(np.float64), loaded.bound)


@pytest.mark.parametrize(("name", "k"), CASES)
def test_greedy_by_one_pass(name: str, k: int) -> None:
    """One pass over prompt + continuation names every next token, where the gap is clear."""
    loaded = load(name)
    prompt, ids = loaded.golden[f"prompts.{k}"], loaded.golden[f"greedy_f64.{k}"]
    gaps = loaded.golden[f"gap_f64.{k}"]
    rows = loaded.model.logits(np.concatenate([prompt, ids[:-1]]))[len(prompt) - 1 :]
    clear = gaps > 1e-6
    assert clear.sum() >= 250
    assert np.array_equal(rows.argmax(axis=-1)[clear], ids[clear])
    best = np.sort(rows, axis=-1)
    assert np.abs(best[:, -1] - best[:, -2] - gaps).max() < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_greedy_with_the_cache(name: str) -> None:
    loaded = load(name)
    ids, gaps = loaded.model.greedy(loaded.golden["prompts.1"], 40)
    assert gaps.min() > 1e-6
    assert np.array_equal(ids, loaded.golden["greedy_f64.1"][:40])


@pytest.mark.parametrize("k", range(4))
def test_mtp_logits(k: int) -> None:
    loaded = load("tandem-small")
    prompt, wanted = loaded.golden[f"prompts.{k}"], loaded.golden[f"mtp_logits_f64.{k}"]
    next_ids = np.append(prompt[1:], loaded.golden[f"greedy_f64.{k}"][0])
    got = loaded.model.mtp_logits(loaded.model.hidden(prompt), next_ids)
    assert_close("mtp", got[-len(wanted) :], wanted.astype(np.float64), loaded.bound)


@pytest.mark.parametrize(("name", "k"), CASES)
def test_bf16_is_near(name: str, k: int) -> None:
    """transformers' own bf16 pass lies about where its roundings put it: a check of the goldens."""
    golden = load(name).golden
    exact, rounded = golden[f"logits_f64.{k}"].astype(np.float64), golden[f"logits_bf16.{k}"]
    error = np.linalg.norm(rounded - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
    assert np.median(error) < 0.05


@pytest.mark.parametrize("name", NAMES)
def test_moe_layers_follow_the_config(name: str) -> None:
    model = load(name).model
    for i in range(model.config["num_hidden_layers"]):
        assert (f"model.layers.{i}.mlp.gate.weight" in model.w) == model.is_moe_layer(i)


def test_every_expert_is_used() -> None:
    """A dead expert would let a broken one go unseen."""
    loaded = load("tandem-small")
    used: dict[str, set[int]] = {}
    original = loaded.model.dense_mlp

    def spy(prefix: str, x: np.ndarray) -> np.ndarray:
        layer, _, expert = prefix.partition(".experts.")
        used.setdefault(layer, set()).add(int(expert))
        return original(prefix, x)

    loaded.model.dense_mlp = spy  # type: ignore[method-assign]
    try:
        loaded.model.logits(loaded.golden["prompts.3"])
    finally:
        loaded.model.dense_mlp = original  # type: ignore[method-assign]
    assert all(len(experts) == loaded.model.config["num_experts"] for experts in used.values())
    assert len(used) == 4


def test_tokenizer_golden_is_complete() -> None:
    golden = json.loads((GOLDEN / "tandem-small" / "tokenizer_golden.json").read_text())
    assert len(golden["strings"]) >= 30
    assert len(golden["conversations"]) >= 10
