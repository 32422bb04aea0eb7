"""Three inputs (ids, a mask of the words that count, numbers) and two outputs."""

import torch
from torch import nn


class MaskedMean(nn.Module):
    """The mean over the words that count."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = mask.to(x.dtype).unsqueeze(-1)
        return (x * kept).sum(1) / kept.sum(1).clamp(min=1)


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.pool = MaskedMean()
        self.numeric = nn.Linear(3, 8)
        self.hidden = nn.Linear(16, 12)
        self.topic = nn.Linear(12, 4)
        self.score = nn.Linear(12, 1)

    def forward(
        self, numbers: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        text = self.pool(self.embedding(ids), mask)
        hidden = torch.tanh(self.hidden(torch.cat([text, self.numeric(numbers)], -1)))
        return self.topic(hidden), self.score(hidden).squeeze(-1)


def build() -> nn.Module:
    return Ranker()
