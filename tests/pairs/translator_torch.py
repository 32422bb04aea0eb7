"""torch's whole transformer, with padding in the source and a causal mask over the target."""

import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self, words: int, dim: int, heads: int):
        super().__init__()
        self.src_embed = nn.Embedding(words, dim)
        self.tgt_embed = nn.Embedding(words, dim)
        self.transformer = nn.Transformer(dim, heads, 1, 1, 2 * dim, 0.0, batch_first=True, norm_first=True)
        self.generator = nn.Linear(dim, words)

    def forward(self, src: torch.Tensor, padding: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        causal = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool, device=tgt.device).triu(1)
        padding = padding.clone()
        padding[:, 0] = False  # no sentence is empty
        out = self.transformer(
            self.src_embed(src),
            self.tgt_embed(tgt),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.generator(out)


def build(words: int, dim: int, heads: int) -> nn.Module:
    return Translator(words, dim, heads)
