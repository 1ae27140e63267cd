# SPDX-License-Identifier: Apache-2.0
"""Qwen3-MoE with one MTP layer in plain PyTorch, written for training.

All experts are computed for every token and weighted with the (mostly zero) routing weights: with
16 narrow experts that keeps the products dense and free of gathers. The parameters keep Hugging
Face's names except that the experts of a layer are stacked; export.py splits them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class ModelConfig:
    vocab_size: int = 4096
    hidden_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 128
    num_experts: int = 16
    num_experts_per_tok: int = 4
    moe_intermediate_size: int = 128
    rope_theta: float = 100_000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 4096

    def to_dict(self) -> dict[str, int | float]:
        return asdict(self)


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.double() if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide.to(x.dtype) * self.weight).to(x.dtype)


def rope_table(config: ModelConfig, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin [length, head_dim], from float64: float32 angles are off by 1e-4 far out."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float64, device=device)
    inv_freq = config.rope_theta ** (-steps / config.head_dim)
    angle = torch.outer(torch.arange(length, dtype=torch.float64, device=device), inv_freq)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


class Attention(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.hidden_size, c.num_attention_heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.num_attention_heads * c.head_dim, c.hidden_size, bias=False)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, _ = x.shape
        c = self.c
        q = self.q_norm(self.q_proj(x).view(b, t, c.num_attention_heads, c.head_dim)).transpose(
            1, 2
        )
        k = self.k_norm(self.k_proj(x).view(b, t, c.num_key_value_heads, c.head_dim)).transpose(
            1, 2
        )
        v = self.v_proj(x).view(b, t, c.num_key_value_heads, c.head_dim).transpose(1, 2)
        q = rotate(q, cos, sin).to(v.dtype)
        k = rotate(k, cos, sin).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Experts(nn.Module):
    """All experts of a layer, one below the other: expert e owns rows e*I .. e*I+I-1."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        rows = c.num_experts * c.moe_intermediate_size
        self.gate_proj = nn.Linear(c.hidden_size, rows, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, rows, bias=False)
        self.down_proj = nn.Linear(rows, c.hidden_size, bias=False)


class MoE(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.c = c
        self.gate = nn.Linear(c.hidden_size, c.num_experts, bias=False)
        self.experts = Experts(c)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the output, the mean router probability and the share of tokens per expert."""
        c = self.c
        logits = self.gate(x)
        p = logits.softmax(-1, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)
        top_p, top = p.topk(c.num_experts_per_tok, dim=-1)
        route = torch.zeros_like(p).scatter(-1, top, top_p / top_p.sum(-1, keepdim=True))
        hidden = F.silu(self.experts.gate_proj(x)) * self.experts.up_proj(x)
        hidden = hidden.unflatten(-1, (c.num_experts, c.moe_intermediate_size))
        hidden = (hidden * route.to(hidden.dtype).unsqueeze(-1)).flatten(-2)
        dims = tuple(range(p.dim() - 1))
        return self.experts.down_proj(hidden), p.mean(dims), (route > 0).to(p.dtype).mean(dims)


class Layer(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MoE(c)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        y, mean_p, share = self.mlp(self.post_attention_layernorm(x))
        return x + y, mean_p, share


class Backbone(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList([Layer(c) for _ in range(c.num_hidden_layers)])
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)


class Mtp(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.pre_fc_norm_embedding = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.pre_fc_norm_hidden = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.fc = nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)
        self.layers = nn.ModuleList([Layer(c)])
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)


@dataclass
class Output:
    logits: Tensor  # [B, T, V]: row t predicts token t+1
    mtp_logits: Tensor  # [B, T, V]: row t predicts token t+2
    balance: Tensor  # mean over layers of E * sum(share/K * p): 1 when all experts are used alike
    shares: Tensor  # [layers + 1, E]: share of the tokens that pick each expert


class TandemSmall(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        self.mtp = Mtp(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                # The products that write to the residual stream start smaller, as in GPT-2.
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 * (0.35 if last else 1.0))

    def forward(self, ids: Tensor, next_ids: Tensor) -> Output:
        """ids [B, T] are the inputs, next_ids [B, T] the same shifted left by one."""
        c = self.config
        cos, sin = rope_table(c, ids.shape[1], ids.device)
        embed = self.model.embed_tokens
        x = embed(ids)
        rope_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        cos, sin = cos.to(rope_dtype), sin.to(rope_dtype)
        balances, shares = [], []

        def run(layer: nn.Module, x: Tensor) -> Tensor:
            x, mean_p, share = layer(x, cos, sin)
            balances.append((mean_p * share).sum() * c.num_experts / c.num_experts_per_tok)
            shares.append(share)
            return x

        for layer in self.model.layers:
            x = run(layer, x)
        h = self.model.norm(x)
        # The embedding comes first, the target's normed hidden state second.
        joined = torch.cat(
            [self.mtp.pre_fc_norm_embedding(embed(next_ids)), self.mtp.pre_fc_norm_hidden(h)],
            dim=-1,
        )
        m = self.mtp.norm(run(self.mtp.layers[0], self.mtp.fc(joined)))
        return Output(
            self.lm_head(h), self.lm_head(m), torch.stack(balances).mean(), torch.stack(shares)
        )
