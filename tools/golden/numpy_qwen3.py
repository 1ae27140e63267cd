# SPDX-License-Identifier: Apache-2.0
"""Qwen3 (dense, MoE, with an MTP layer) in float64 NumPy: the reference that tests compute with.

It is written from the formulas alone, independently of PyTorch and of the engine, and is itself
checked against the goldens that transformers wrote (test_numpy_qwen3.py).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors_numpy

Array = np.ndarray


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x [..., H], weight [H]: the plain norm of Qwen3, scaled by w (not by 1 + w)."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def rope_frequencies(config: dict[str, Any]) -> tuple[Array, float]:
    """Returns the angle per position of each pair [head_dim / 2] and the factor on cos and sin."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    dim = config["head_dim"]
    frequency = theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return frequency, 1.0
    if kind != "yarn":
        raise ValueError(f"unknown rope_type {kind!r}")
    factor = float(rope["factor"])
    original = rope.get("original_max_position_embeddings") or config["max_position_embeddings"]

    def pair_with_rotations(rotations: float) -> float:
        """The pair that turns this often over the original length."""
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_with_rotations(rope.get("beta_fast", 32))), 0)
    high = min(math.ceil(pair_with_rotations(rope.get("beta_slow", 1))), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    scale = rope.get("attention_factor")
    return (
        frequency / factor * ramp + frequency * (1 - ramp),
        float(scale) if scale is not None else 0.1 * math.log(factor) + 1.0,
    )


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """x [T, heads, D], cos and sin [T, 1, D/2]: element i pairs with element D/2 + i."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


@dataclass
class LayerCache:
    """Normed, rotated keys and plain values of the tokens so far, [T, kv_heads, D]."""

    k: Array | None = None
    v: Array | None = None


@dataclass
class Cache:
    layers: dict[str, LayerCache] = field(default_factory=dict)

    def of(self, prefix: str) -> LayerCache:
        return self.layers.setdefault(prefix, LayerCache())


class Qwen3:
    def __init__(self, config: dict[str, Any], tensors: dict[str, Array]) -> None:
        self.config = config
        self.w = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
        self.eps = config["rms_norm_eps"]
        self.inv_freq, self.rope_scale = rope_frequencies(config)
        self.head = self.w[
            "model.embed_tokens.weight" if config.get("tie_word_embeddings") else "lm_head.weight"
        ]

    @classmethod
    def load(cls, directory: Path) -> Qwen3:
        config = json.loads((directory / "config.json").read_text())
        return cls(config, safetensors_numpy.read_checkpoint(directory))

    # ---- pieces of a layer -------------------------------------------------------------------

    def attention(self, prefix: str, x: Array, first_position: int, cache: Cache) -> Array:
        """x [T, H] at positions first_position ...; earlier tokens come from the cache."""
        c, w, t = self.config, self.w, x.shape[0]
        d, heads, kv_heads = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        q = (x @ w[f"{prefix}.q_proj.weight"].T).reshape(t, heads, d)
        k = (x @ w[f"{prefix}.k_proj.weight"].T).reshape(t, kv_heads, d)
        v = (x @ w[f"{prefix}.v_proj.weight"].T).reshape(t, kv_heads, d)
        angle = np.arange(first_position, first_position + t)[:, None, None] * self.inv_freq
        cos, sin = np.cos(angle) * self.rope_scale, np.sin(angle) * self.rope_scale
        q = rotate(rms_norm(q, w[f"{prefix}.q_norm.weight"], self.eps), cos, sin)
        k = rotate(rms_norm(k, w[f"{prefix}.k_norm.weight"], self.eps), cos, sin)
        past = cache.of(prefix)
        if past.k is not None and past.v is not None:
            k, v = np.concatenate([past.k, k]), np.concatenate([past.v, v])
        past.k, past.v = k, v
        query_position = np.arange(first_position, first_position + t)[:, None]
        hidden = np.arange(k.shape[0])[None, :] > query_position
        out = np.empty((t, heads, d))
        for head in range(heads):
            kv = head * kv_heads // heads
            scores = q[:, head] @ k[:, kv].T / math.sqrt(d)
            out[:, head] = softmax(np.where(hidden, -np.inf, scores)) @ v[:, kv]
        return out.reshape(t, heads * d) @ w[f"{prefix}.o_proj.weight"].T

    def dense_mlp(self, prefix: str, x: Array) -> Array:
        w = self.w
        gate = silu(x @ w[f"{prefix}.gate_proj.weight"].T)
        return (gate * (x @ w[f"{prefix}.up_proj.weight"].T)) @ w[f"{prefix}.down_proj.weight"].T

    def moe(self, prefix: str, x: Array) -> Array:
        c = self.config
        p = softmax(x @ self.w[f"{prefix}.gate.weight"].T)  # [T, E]
        # A stable sort breaks ties towards the lower expert.
        chosen = np.argsort(-p, axis=-1, kind="stable")[:, : c["num_experts_per_tok"]]
        weight = np.take_along_axis(p, chosen, axis=-1)
        if c.get("norm_topk_prob", True):
            weight = weight / weight.sum(axis=-1, keepdims=True)
        out = np.zeros_like(x)
        for expert in range(c["num_experts"]):
            token, slot = np.nonzero(chosen == expert)
            if token.size:
                part = self.dense_mlp(f"{prefix}.experts.{expert}", x[token])
                out[token] += weight[token, slot][:, None] * part
        return out

    def layer(self, prefix: str, x: Array, first_position: int, cache: Cache) -> Array:
        w = self.w
        normed = rms_norm(x, w[f"{prefix}.input_layernorm.weight"], self.eps)
        x = x + self.attention(f"{prefix}.self_attn", normed, first_position, cache)
        normed = rms_norm(x, w[f"{prefix}.post_attention_layernorm.weight"], self.eps)
        # Whether a layer is MoE is read off its tensors; the config's rule is checked by the tests.
        mlp = self.moe if f"{prefix}.mlp.gate.weight" in w else self.dense_mlp
        return x + mlp(f"{prefix}.mlp", normed)

    # ---- whole passes ------------------------------------------------------------------------

    def is_moe_layer(self, index: int) -> bool:
        c = self.config
        return (
            c["model_type"] == "qwen3_moe"
            and index not in (c.get("mlp_only_layers") or [])
            and (index + 1) % c.get("decoder_sparse_step", 1) == 0
        )

    def hidden(self, ids: Array, first_position: int = 0, cache: Cache | None = None) -> Array:
        """The states after the final norm, [T, H]: what the head and the MTP layer read."""
        cache = Cache() if cache is None else cache
        x = self.w["model.embed_tokens.weight"][ids]
        for i in range(self.config["num_hidden_layers"]):
            x = self.layer(f"model.layers.{i}", x, first_position, cache)
        return rms_norm(x, self.w["model.norm.weight"], self.eps)

    def logits(self, ids: Array, first_position: int = 0, cache: Cache | None = None) -> Array:
        """[T, V]: row t predicts token t + 1."""
        return self.hidden(ids, first_position, cache) @ self.head.T

    def mtp_hidden(
        self, hidden: Array, next_ids: Array, first_position: int = 0, cache: Cache | None = None
    ) -> Array:
        """hidden [T, H] from `hidden`, next_ids [T] one further on; returns mtp.norm's output."""
        cache = Cache() if cache is None else cache
        w = self.w
        e = rms_norm(
            w["model.embed_tokens.weight"][next_ids],
            w["mtp.pre_fc_norm_embedding.weight"],
            self.eps,
        )
        n = rms_norm(hidden, w["mtp.pre_fc_norm_hidden.weight"], self.eps)
        x = np.concatenate([e, n], axis=-1) @ w["mtp.fc.weight"].T
        x = self.layer("mtp.layers.0", x, first_position, cache)
        return rms_norm(x, w["mtp.norm.weight"], self.eps)

    def mtp_logits(
        self, hidden: Array, next_ids: Array, first_position: int = 0, cache: Cache | None = None
    ) -> Array:
        """[T, V]: row t predicts token t + 2."""
        return self.mtp_hidden(hidden, next_ids, first_position, cache) @ self.head.T

    def greedy(self, prompt: Array, steps: int) -> tuple[Array, Array]:
        """Returns the greedy ids and, per step, the gap between the best two logits."""
        cache = Cache()
        last = self.logits(prompt, 0, cache)[-1]
        ids, gaps = [], []
        for step in range(steps):
            best, second = np.argpartition(-last, 1)[:2]
            if last[second] > last[best]:
                best, second = second, best
            ids.append(int(best))
            gaps.append(float(last[best] - last[second]))
            if step + 1 < steps:
                last = self.logits(np.array([best]), len(prompt) + step, cache)[-1]
        return np.array(ids), np.array(gaps)
