"""A small language model: pre-norm blocks, a causal mask, GELU in its tanh form and in its exact one."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, approximate: str):
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        normed = self.ln_1(x)
        x = x + self.attn(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, words: int, length: int, dim: int, heads: int):
        super().__init__()
        self.wte = nn.Embedding(words, dim)
        self.wpe = nn.Embedding(length, dim)
        self.h = nn.ModuleList([Block(dim, heads, "tanh"), Block(dim, heads, "none")])
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, words, bias=False)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        x = self.wte(ids) + self.wpe(torch.arange(length, device=ids.device))
        for block in self.h:
            x = block(x, self.mask[:length, :length])
        return self.lm_head(self.ln_f(x))


def build(words: int, length: int, dim: int, heads: int) -> nn.Module:
    return GPT(words, length, dim, heads)
