"""A decoder of today's kind: RMS norm and rotary positions in float32, grouped queries, a gated feed-forward net."""

import torch
from torch import nn
from torch.nn import functional


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, groups: int):
        super().__init__()
        self.size = dim // heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, groups * self.size, bias=False)
        self.v_proj = nn.Linear(dim, groups * self.size, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.split(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.size)).transpose(1, 2)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return (x * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)


class MLP(nn.Module):
    def __init__(self, dim: int, inner: int):
        super().__init__()
        self.gate_proj = nn.Linear(dim, inner, bias=False)
        self.up_proj = nn.Linear(dim, inner, bias=False)
        self.down_proj = nn.Linear(inner, dim, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int, groups: int, inner: int, eps: float):
        super().__init__()
        self.self_attn = Attention(dim, heads, groups)
        self.mlp = MLP(dim, inner)
        self.input_layernorm = RMSNorm(dim, eps)
        self.post_attention_layernorm = RMSNorm(dim, eps)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, words: int, dim: int, heads: int, groups: int, inner: int, eps: float):
        super().__init__()
        self.embed_tokens = nn.Embedding(words, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, groups, inner, eps) for _ in range(2))
        self.norm = RMSNorm(dim, eps)
        size = dim // heads
        # An island: the frequencies are float32 whatever the model is.
        self.register_buffer("inv_freq", 100.0 ** -(torch.arange(0, size, 2).float() / size), persistent=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).float()
        angles = torch.outer(positions, self.inv_freq.float()).repeat(1, 2)
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin())
        return self.norm(x)


def build(words: int, dim: int, heads: int, groups: int, inner: int) -> nn.Module:
    return Decoder(words, dim, heads, groups, inner, 2.0**-17)
