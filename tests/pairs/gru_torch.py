"""A GRU that labels every word."""

import torch
from torch import nn


class WordTagger(nn.Module):
    def __init__(self, words: int, tags: int, padding: int | None):
        super().__init__()
        self.embed = nn.Embedding(words, 6, padding)
        self.rnn = nn.GRU(6, 10, batch_first=True)
        self.out = nn.Linear(10, tags)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states, _ = self.rnn(self.embed(ids))
        return self.out(states)


def build(words: int, tags: int, padding: int | None = None) -> nn.Module:
    return WordTagger(words, tags, padding)
