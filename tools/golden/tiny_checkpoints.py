# SPDX-License-Identifier: Apache-2.0
"""Writes tiny random checkpoints in Hugging Face layout, with shapes the big models lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

COMMON: dict[str, Any] = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
}

CONFIGS: dict[str, dict[str, Any]] = {
    # One KV head; hidden != heads * head_dim; layers 1 and 5 are MoE: 0, 2 and 4 are dense by the
    # sparse step, 3 by the list.
    "tiny-moe-1kv": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "vocab_size": 131,
        "hidden_size": 72,
        "num_hidden_layers": 6,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "intermediate_size": 56,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
        "router_aux_loss_coef": 0.001,
        "output_router_logits": False,
        "max_position_embeddings": 1024,
        "max_window_layers": 6,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": True,
    },
    "tiny-dense": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 157,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 96,
        "max_position_embeddings": 1024,
        "max_window_layers": 2,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "tie_word_embeddings": True,
    },
    # Prompts are longer than the original length, so that the scaling matters.
    "tiny-dense-untied-yarn": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 149,
        "hidden_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 24,
        "intermediate_size": 104,
        "max_position_embeddings": 512,
        "max_window_layers": 3,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        },
        "tie_word_embeddings": False,
    },
}


def is_moe_layer(config: dict[str, Any], layer: int) -> bool:
    return (
        config["model_type"] == "qwen3_moe"
        and layer not in config["mlp_only_layers"]
        and (layer + 1) % config["decoder_sparse_step"] == 0
    )


def shapes_of(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    h, d = config["hidden_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], h)}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}"
        shapes[f"{p}.input_layernorm.weight"] = (h,)
        shapes[f"{p}.self_attn.q_proj.weight"] = (heads * d, h)
        shapes[f"{p}.self_attn.k_proj.weight"] = (kv_heads * d, h)
        shapes[f"{p}.self_attn.v_proj.weight"] = (kv_heads * d, h)
        shapes[f"{p}.self_attn.o_proj.weight"] = (h, heads * d)
        shapes[f"{p}.self_attn.q_norm.weight"] = (d,)
        shapes[f"{p}.self_attn.k_norm.weight"] = (d,)
        shapes[f"{p}.post_attention_layernorm.weight"] = (h,)
        if is_moe_layer(config, i):
            shapes[f"{p}.mlp.gate.weight"] = (config["num_experts"], h)
            blocks = [
                (f"{p}.mlp.experts.{e}", config["moe_intermediate_size"])
                for e in range(config["num_experts"])
            ]
        else:
            blocks = [(f"{p}.mlp", config["intermediate_size"])]
        for block, width in blocks:
            shapes[f"{block}.gate_proj.weight"] = (width, h)
            shapes[f"{block}.up_proj.weight"] = (width, h)
            shapes[f"{block}.down_proj.weight"] = (h, width)
    shapes["model.norm.weight"] = (h,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], h)
    return shapes


def random_tensor(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Large enough that attention and routing are far from uniform, so that any mistake shows."""
    noise = torch.randn(shape, generator=generator)
    if len(shape) == 1:
        return 1 + 0.25 * noise
    if "embed_tokens" in name:
        return 0.5 * noise
    return noise * 1.5 / shape[1] ** 0.5


def write(name: str, directory: Path) -> None:
    config = {**COMMON, **CONFIGS[name]}
    generator = torch.Generator().manual_seed(sum(name.encode()))
    tensors = {
        n: random_tensor(n, s, generator).to(torch.bfloat16) for n, s in shapes_of(config).items()
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(
        json.dumps(dict(sorted(config.items())), indent=2) + "\n"
    )
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)
