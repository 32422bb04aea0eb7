"""The torch halves of the soundness table: chains of steps written as text, so that one builder serves most rows.

A step is "name argument ..."; `torch_layers.py` and `torch_steps.py` have all of them. A step that is a dict
{"mul": [chain, chain]} runs chains side by side and combines what they return. A prefix limits a step: "train:" and
"eval:" to a mode, "low:" and "high:" to runs below float64 and in it.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from notation import parse, runs
from torch import Tensor, nn
from torch.nn import functional
from torch_layers import LAYERS
from torch_steps import COMBINED, FUNCTIONS

Steps = Sequence[Any]


class Chain(nn.Module):
    """Calls its steps one after the other. Layers are attributes named by kind and number: linear0, linear1."""

    def __init__(self, steps: Steps):
        super().__init__()
        self.calls = [self._prepared(step) for step in steps]

    def _prepared(self, step: Any) -> tuple[str, Any]:
        if isinstance(step, dict):
            return "", self._branches(step)
        prefix, name, given = parse(step)
        if name in LAYERS:
            layer = LAYERS[name](*given)
            setattr(self, self._named(name), layer)
            return prefix, lambda x: layer(x)
        if name == "again":  # a layer that was called before
            return prefix, lambda x: getattr(self, given[0])(x)
        return prefix, lambda x: FUNCTIONS[name](x, *given)

    def _named(self, kind: str) -> str:
        kind = kind.removeprefix("padded_")
        names = (f"{kind}{number}" for number in itertools.count())
        return next(name for name in names if not hasattr(self, name) and not hasattr(self, f"{name}_0"))

    def _branches(self, step: dict[str, list[Steps]]) -> Any:
        ((name, chains),) = step.items()
        place = self._named("branch")
        branches = [Chain(steps) for steps in chains]
        for number, branch in enumerate(branches):
            setattr(self, f"{place}_{number}", branch)
        return lambda x: COMBINED[name]([branch(x) for branch in branches])

    def forward(self, x: Tensor) -> Any:
        for prefix, call in self.calls:
            if runs(prefix, self.training, torch.get_default_dtype() == torch.float64):
                x = call(x)
        return x


def chain(steps: Steps) -> nn.Module:
    return Chain(steps)


class Gated(nn.Module):
    """silu(gate(x)) * up(x); `exchanged`: the other way round."""

    def __init__(self, exchanged: bool):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)
        self.exchanged = exchanged

    def forward(self, x: Tensor) -> Tensor:
        first, second = (self.up, self.gate) if self.exchanged else (self.gate, self.up)
        return self.down(functional.silu(first(x)) * second(x))


class Attention(nn.Module):
    """One head; `order`: which of the layers makes queries, keys and values; `bias`: of the layers."""

    def __init__(self, order: Sequence[str], bias: bool, causal: bool):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        for name in ("query", "key", "value"):
            setattr(self, name, nn.Linear(8, 8, bias=bias))
        self.out, self.order, self.causal = nn.Linear(8, 8), order, causal

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (getattr(self, name)(self.norm(x)) for name in self.order)
        scores = query @ key.transpose(-1, -2) / 8**0.5
        if self.causal:
            scores = scores + torch.full(scores.shape[-2:], -math.inf, dtype=x.dtype).triu(1)
        return x + self.out(scores.softmax(-1) @ value)


class Heads(nn.Module):
    """Two heads of one shape on a body; `exchanged`: each returns what the other should."""

    def __init__(self, exchanged: bool):
        super().__init__()
        self.body, self.mean, self.spread = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 4)
        self.exchanged = exchanged

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.body(x))
        found = self.mean(hidden), self.spread(hidden)
        return found[::-1] if self.exchanged else found


class Towers(nn.Module):
    """Two encoders of one shape for two inputs; `exchanged`: each reads the other's."""

    def __init__(self, exchanged: bool):
        super().__init__()
        self.user, self.item = nn.Linear(8, 8), nn.Linear(8, 8)
        self.exchanged = exchanged

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        if self.exchanged:
            user, item = item, user
        return torch.tanh(self.user(user)) - 2 * torch.tanh(self.item(item))


class Embedded(nn.Module):
    """Words and types of one size of vocabulary; `exchanged`: each looks up in the other's table."""

    def __init__(self, exchanged: bool):
        super().__init__()
        self.words, self.types = nn.Embedding(20, 8), nn.Embedding(20, 8)
        self.norm, self.exchanged = nn.LayerNorm(8), exchanged

    def forward(self, words: Tensor, types: Tensor) -> Tensor:
        if self.exchanged:
            words, types = types, words
        return self.norm(self.words(words) + 2 * self.types(types))


class Normed(nn.Module):
    """Two norms of one shape around a layer; `exchanged`: each in the other's place."""

    def __init__(self, exchanged: bool):
        super().__init__()
        self.norm_before, self.layer, self.norm_after = nn.LayerNorm(8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.exchanged = exchanged

    def forward(self, x: Tensor) -> Tensor:
        before, after = (self.norm_after, self.norm_before) if self.exchanged else (self.norm_before, self.norm_after)
        return after(self.layer(before(x)))


class Recurrence(nn.Module):
    """A gated recurrence by hand over the second axis; `exchanged`: update and reset gates."""

    def __init__(self, exchanged: bool):
        super().__init__()
        self.update, self.reset, self.new = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(16, 8)
        self.exchanged = exchanged

    def forward(self, x: Tensor) -> Tensor:
        update, reset = (self.reset, self.update) if self.exchanged else (self.update, self.reset)
        state = torch.zeros_like(x[:, 0])
        for place in range(x.shape[1]):
            joined = torch.cat([x[:, place], state], -1)
            share, kept = torch.sigmoid(update(joined)), torch.sigmoid(reset(joined))
            fresh = torch.tanh(self.new(torch.cat([x[:, place], kept * state], -1)))
            state = (1 - share) * state + share * fresh
        return state


def gated(exchanged: bool = False) -> nn.Module:
    return Gated(exchanged)


def attention(order: Sequence[str] = ("query", "key", "value"), bias: bool = True, causal: bool = False) -> nn.Module:
    return Attention(order, bias, causal)


def heads(exchanged: bool = False) -> nn.Module:
    return Heads(exchanged)


def towers(exchanged: bool = False) -> nn.Module:
    return Towers(exchanged)


def embedded(exchanged: bool = False) -> nn.Module:
    return Embedded(exchanged)


def normed(exchanged: bool = False) -> nn.Module:
    return Normed(exchanged)


def recurrence(exchanged: bool = False) -> nn.Module:
    return Recurrence(exchanged)
