"""A language model whose head is its embedding."""

import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, words: int, dim: int):
        super().__init__()
        self.embed_tokens = nn.Embedding(words, dim)
        self.dense = nn.Linear(dim, dim)
        self.act = nn.Tanh()
        self.lm_head = nn.Linear(dim, words, bias=False)
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.act(self.dense(self.embed_tokens(ids))))


def build(words: int, dim: int) -> nn.Module:
    return LanguageModel(words, dim)
