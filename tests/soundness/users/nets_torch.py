"""The small networks that most rows train."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Mlp(nn.Module):
    def __init__(self, inputs: int = 8, hidden: int = 16, outputs: int = 4):
        super().__init__()
        self.body = nn.Linear(inputs, hidden)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x)))


class Tagger(nn.Module):
    """Scores of every word; word 0 is padding."""

    def __init__(self, words: int = 6, dim: int = 8, classes: int = 3):
        super().__init__()
        self.embedding = nn.Embedding(words, dim)
        self.body = nn.Linear(dim, 10)
        self.head = nn.Linear(10, classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(functional.relu(self.body(self.embedding(ids))))


def mlp() -> nn.Module:
    return Mlp()


def tagger() -> nn.Module:
    return Tagger()
