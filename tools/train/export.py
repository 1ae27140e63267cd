# SPDX-License-Identifier: Apache-2.0
"""Writes a trained model in Hugging Face layout, and reads such a checkpoint back."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from model import ModelConfig, TandemSmall

SHARD_BYTES = 15_000_000
_EXPERTS = re.compile(r"^(.*\.mlp\.experts)\.(gate|up|down)_proj\.weight$")


def split_experts(state: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Stacked experts become single ones: gate and up are cut by rows, down by columns."""
    out: dict[str, Tensor] = {}
    for name, tensor in state.items():
        match = _EXPERTS.match(name)
        if not match:
            out[name] = tensor
            continue
        cut = tensor.split(config.moe_intermediate_size, dim=1 if match[2] == "down" else 0)
        for expert, part in enumerate(cut):
            out[f"{match[1]}.{expert}.{match[2]}_proj.weight"] = part
    return out


def join_experts(tensors: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    parts: dict[str, dict[int, Tensor]] = {}
    for name, tensor in tensors.items():
        match = re.match(r"^(.*\.mlp\.experts)\.(\d+)\.((?:gate|up|down)_proj\.weight)$", name)
        if match:
            parts.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = tensor
        else:
            out[name] = tensor
    for name, by_expert in parts.items():
        dim = 1 if "down_proj" in name else 0
        out[name] = torch.cat([by_expert[e] for e in range(config.num_experts)], dim=dim)
    return out


def _order(name: str) -> tuple[int, int, str, int, str]:
    """embed, layers by number (experts by number), final norm, head, then the MTP layer."""
    group = (
        3
        if name.startswith("mtp.")
        else 2
        if name.startswith("lm_head")
        else (0 if "embed_tokens" in name else 1)
    )
    layer = re.search(r"layers\.(\d+)\.", name)
    expert = re.search(r"experts\.(\d+)\.", name)
    return (
        group,
        int(layer[1]) if layer else 10_000,
        name.split("experts.")[0],
        int(expert[1]) if expert else -1,
        name,
    )


def hf_config(config: ModelConfig, eos_token_id: int, pad_token_id: int) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": pad_token_id,
        "decoder_sparse_step": 1,
        "eos_token_id": eos_token_id,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": 4 * config.hidden_size,
        "max_position_embeddings": config.max_position_embeddings,
        "max_window_layers": config.num_hidden_layers,
        "mlp_only_layers": [],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": config.moe_intermediate_size,
        "mtp_num_hidden_layers": 1,
        "norm_topk_prob": True,
        "num_attention_heads": config.num_attention_heads,
        "num_experts": config.num_experts,
        "num_experts_per_tok": config.num_experts_per_tok,
        "num_hidden_layers": config.num_hidden_layers,
        "num_key_value_heads": config.num_key_value_heads,
        "output_router_logits": False,
        "pad_token_id": pad_token_id,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_scaling": None,
        "rope_theta": config.rope_theta,
        "router_aux_loss_coef": 0.01,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": config.vocab_size,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def write_shards(tensors: dict[str, Tensor], out: Path) -> None:
    """Shards in reading order, each below SHARD_BYTES, with the index that names them."""
    shards: list[dict[str, Tensor]] = [{}]
    used = 0
    for name in sorted(tensors, key=_order):
        size = tensors[name].numel() * tensors[name].element_size()
        if used + size > SHARD_BYTES:
            shards.append({})
            used = 0
        shards[-1][name] = tensors[name].contiguous()
        used += size
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, out / file, metadata={"format": "pt"})
        (out / file).chmod(0o644)
        weight_map.update(dict.fromkeys(shard, file))
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    _write_json(
        out / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))},
    )


def write_checkpoint(model: TandemSmall, out: Path, tokenizer_dir: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    state = {n: p.detach().to("cpu", torch.bfloat16) for n, p in model.state_dict().items()}
    write_shards(split_experts(state, model.config), out)
    ids = {
        t["content"]: t["id"]
        for t in json.loads((tokenizer_dir / "tokenizer.json").read_text())["added_tokens"]
    }
    eos, pad = ids["<|im_end|>"], ids["<|endoftext|>"]
    _write_json(out / "config.json", hf_config(model.config, eos, pad))
    _write_json(
        out / "generation_config.json",
        {
            "bos_token_id": pad,
            "do_sample": True,
            "eos_token_id": [eos, pad],
            "pad_token_id": pad,
            "temperature": 0.6,
            "top_k": 20,
            "top_p": 0.95,
        },
    )
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if out.resolve() != tokenizer_dir.resolve():
            shutil.copyfile(tokenizer_dir / name, out / name)


def read_checkpoint(directory: Path, dtype: torch.dtype, device: str) -> TandemSmall:
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(index["weight_map"].values())):
        tensors.update(load_file(directory / file))
    fields = json.loads((directory / "config.json").read_text())
    config = ModelConfig(**{k: fields[k] for k in ModelConfig().to_dict()})
    model = TandemSmall(config)
    model.load_state_dict(join_experts(tensors, config))
    return model.to(device, dtype).eval()
