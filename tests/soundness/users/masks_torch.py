"""What is masked in torch: padding, the future, what queries may see. Word 0 is padding."""

import math

import torch
from torch import Tensor, nn

LOW = -1e9


class Words(nn.Module):
    """`masked`: the mean is over the words that are none of padding."""

    def __init__(self, masked: bool = True):
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.masked = masked

    def forward(self, ids: Tensor) -> Tensor:
        hidden = torch.tanh(self.body(self.embedding(ids)))
        if not self.masked:
            return self.head(hidden.mean(1))
        valid = (ids != 0)[:, :, None]
        return self.head((hidden * valid).sum(1) / valid.sum(1))


class Classed(Words):
    """A vector of its own stands before the words, and counts as a word."""

    def __init__(self, masked: bool = True):
        super().__init__(masked)
        self.first = nn.Parameter(torch.randn(8))

    def forward(self, ids: Tensor) -> Tensor:
        hidden = torch.cat([self.first.expand(len(ids), 1, 8), torch.tanh(self.body(self.embedding(ids)))], 1)
        if not self.masked:
            return self.head(hidden.mean(1))
        valid = torch.cat([torch.ones(len(ids), 1, dtype=torch.bool), ids != 0], 1)[:, :, None]
        return self.head((hidden * valid).sum(1) / valid.sum(1))


class Padded(nn.Module):
    """The row of padding has no gradient. `pooled`: padding is left out of the mean as well."""

    def __init__(self, pooled: bool = False):
        super().__init__()
        self.embedding, self.head = nn.Embedding(6, 8, padding_idx=0), nn.Linear(8, 3)
        self.pooled = pooled

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embedding(ids) + 0.5
        if not self.pooled:
            return self.head(hidden.mean(1))
        valid = (ids != 0)[:, :, None]
        return self.head((hidden * valid).sum(1) / valid.sum(1).clamp(min=1))


class Attention(nn.Module):
    """`future`: how far a query sees ahead; `past`: how far it sees back."""

    def __init__(self, future: int = 0, past: int = 10):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        apart = torch.arange(5)[None] - torch.arange(5)[:, None]
        self.allowed = (apart <= future) & (apart >= -past)

    def attend(self, x: Tensor, allowed: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(8)
        return torch.softmax(torch.where(allowed, scores, LOW), -1) @ self.value(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, self.allowed)


class Keyed(Attention):
    """With a mask of keys: True is what may be seen."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.attend(x, mask[:, None])


class Selfish(Attention):
    """A query always sees itself; what it may not see is minus infinity."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        allowed = mask[:, None] | torch.eye(5, dtype=torch.bool)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(8)
        return torch.softmax(scores.masked_fill(~allowed, -math.inf), -1) @ self.value(x)


class Heads(nn.Module):
    """torch's attention over words. `pooled`: the mean over words that are no padding."""

    def __init__(self, padding: bool = True, causal: bool = False, pooled: bool = False):
        super().__init__()
        self.embedding = nn.Embedding(6, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.padding, self.causal, self.pooled = padding, causal, pooled

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        low = torch.full((), LOW, dtype=x.dtype)
        padding = torch.where(ids == 0, low, 0.0) if self.padding else None
        future = torch.where(torch.ones(5, 5, dtype=torch.bool).triu(1), low, 0.0) if self.causal else None
        mixed = self.attention(x, x, x, key_padding_mask=padding, attn_mask=future, need_weights=False)[0]
        if not self.pooled:
            return mixed
        valid = (ids != 0)[:, :, None]
        return (mixed * valid).sum(1) / valid.sum(1)


class Recurrent(nn.Module):
    """`skipping`: padding leaves the state as it is."""

    def __init__(self, skipping: bool = True):
        super().__init__()
        self.embedding, self.cell, self.head = nn.Embedding(6, 8), nn.RNNCell(8, 6, bias=False), nn.Linear(6, 3)
        self.skipping = skipping

    def forward(self, ids: Tensor) -> Tensor:
        x, state = self.embedding(ids), self.head.weight.new_zeros(len(ids), 6)
        for step in range(ids.shape[1]):
            new = self.cell(x[:, step], state)
            state = torch.where(ids[:, step, None] != 0, new, state) if self.skipping else new
        return self.head(state)


class Both(nn.Module):
    """Both directions over sequences of several lengths. `packed`: backwards from each sequence's own end."""

    def __init__(self, packed: bool = True):
        super().__init__()
        self.cell = nn.RNN(8, 6, bias=False, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 3)
        self.packed = packed

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if self.packed:
            lengths = lengths.clamp(min=1)
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states = self.cell(x)[1]
        return self.head(torch.cat([states[0], states[1]], 1))


class Normed(nn.Module):
    """A batch norm by hand, with Keras's biased variance. `masked`: over words that are no padding."""

    def __init__(self, masked: bool = False):
        super().__init__()
        self.embedding, self.head = nn.Embedding(6, 8), nn.Linear(8, 3)
        self.register_buffer("running_mean", torch.zeros(8))
        self.register_buffer("running_var", torch.ones(8))
        self.masked = masked

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        mean, var = self.running_mean.clone(), self.running_var.clone()
        if self.training:
            counted = x[ids != 0] if self.masked else x.flatten(0, 1)
            number = len(counted) + 1e-7 * self.masked  # as Keras divides where there is a mask
            mean = counted.sum(0) / number
            var = (counted - mean).square().sum(0) / number
            with torch.no_grad():
                self.running_mean.mul_(0.75).add_(0.25 * mean)
                self.running_var.mul_(0.75).add_(0.25 * var)
        return self.head((x - mean) / torch.sqrt(var + 1e-3))


class Multiplied(Attention):
    """Chances are masked. `renormed`: they add up to one again."""

    def __init__(self, renormed: bool = True):
        super().__init__()
        self.renormed = renormed

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(8)
        chances = torch.softmax(scores, -1) * self.allowed
        if self.renormed:
            chances = chances / chances.sum(-1, keepdim=True)
        return chances @ self.value(x)


class Dotted(nn.Module):
    """Attention of words by their own vectors. `masked`: padding is not seen, and sees nothing."""

    def __init__(self, masked: bool = True):
        super().__init__()
        self.embedding, self.head = nn.Embedding(6, 8), nn.Linear(8, 3)
        self.masked = masked

    def forward(self, ids: Tensor) -> Tensor:
        x, valid = self.embedding(ids), ids != 0
        scores = x @ x.transpose(1, 2)
        if self.masked:
            scores = scores + torch.where(valid, 0.0, LOW).to(x.dtype)[:, None]
        mixed = torch.softmax(scores, -1) @ x
        return self.head(mixed * valid[:, :, None] if self.masked else mixed)
