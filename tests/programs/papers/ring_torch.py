"""Attention over parts of the sequence, as with context parallelism, whose own backward pass is wrong.

TransformerEngine's attention with context parallelism returned right outputs and wrong gradients
(https://github.com/NVIDIA/Megatron-LM/issues/1464). Here the backward pass takes each part's softmax as if there were
no other parts.
"""

import torch
from torch import nn


class RingAttention(torch.autograd.Function):
    """The parts' results, weighted by how much of the whole softmax each part is."""

    @staticmethod
    def forward(ctx, query, key, value, repaired):
        scale = query.shape[-1] ** -0.5
        scores = [scale * query @ part.transpose(-1, -2) for part in key.chunk(2, -2)]
        sums = [each.logsumexp(-1, keepdim=True) for each in scores]
        whole = torch.stack(sums).logsumexp(0)
        parts = zip(scores, sums, value.chunk(2, -2), strict=True)
        out = sum((own - whole).exp() * (each - own).exp() @ part for each, own, part in parts)
        ctx.save_for_backward(query, key, value, out, whole, *sums)
        ctx.repaired = repaired
        return out

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, out, whole, *sums = ctx.saved_tensors
        scale, delta = query.shape[-1] ** -0.5, (gradient * out).sum(-1, keepdim=True)
        of_query, of_key, of_value = torch.zeros_like(query), [], []
        for part, own, total in zip(key.chunk(2, -2), value.chunk(2, -2), sums, strict=True):
            weights = (scale * query @ part.transpose(-1, -2) - (whole if ctx.repaired else total)).exp()
            of_scores = scale * weights * (gradient @ own.transpose(-1, -2) - delta)
            of_query += of_scores @ part
            of_key.append(of_scores.transpose(-1, -2) @ query)
            of_value.append(weights.transpose(-1, -2) @ gradient)
        return of_query, torch.cat(of_key, -2), torch.cat(of_value, -2), None


class Block(nn.Module):
    def __init__(self, dim: int, repaired: bool):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.norm, self.repaired = nn.LayerNorm(dim), repaired

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = RingAttention.apply(self.query(x), self.key(x), self.value(x), self.repaired)
        return self.norm(x + mixed)


def build(dim: int, repaired: bool = False) -> nn.Module:
    return Block(dim, repaired)
