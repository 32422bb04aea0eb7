"""Models as users write them, for the tests of pairs: "pair_models:NAME"."""

import dataclasses
from typing import NamedTuple

import numpy as np
import torch
from pair_helpers import helper
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.checkpoint import checkpoint


class MLP(nn.Module):
    """A module in two places, a module called twice, a frozen layer, an unused one, statistics and a table."""

    def __init__(self, width: int = 4):
        super().__init__()
        self.first = nn.Linear(3, width)
        self.norm = nn.BatchNorm1d(width)
        self.act = nn.ReLU(inplace=True)
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.unused = nn.Linear(2, 2)
        self.again = self.first
        self.register_buffer("table", torch.arange(width) / 3)
        self.register_buffer("order", torch.arange(width).flip(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.act(self.norm(self.first(x)))
        return self.act(self.frozen(hidden) + self.table[self.order])


class Frozen(nn.Module):
    """Parameters that are not trained: one drawn at random, and one of zeros; and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.drawn = nn.Parameter(torch.randn(4), requires_grad=False)
        self.zeros = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.register_buffer("table", torch.arange(4) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) * self.drawn + self.zeros + self.table


class Chosen(nn.Module):
    """Frozen parameters that are as their modules begin, or that this file gives other values; and a trained one."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.reset, self.set = (nn.Linear(4, 4).requires_grad_(False) for _ in range(3))
        self.reset.reset_parameters()
        nn.init.normal_(self.set.weight)
        self.given = nn.Embedding.from_pretrained(torch.randn(4, 4))
        self.own = nn.Parameter(torch.randn(4), requires_grad=False)
        self.attention, self.trained = nn.MultiheadAttention(4, 1).requires_grad_(False), nn.Linear(4, 4)
        nn.init.normal_(self.trained.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.attention(x, x, x)[0] + self.given(torch.arange(4)).sum(0)
        return self.trained(self.begun(x) + self.reset(x) + self.set(x) + self.own)


class Tied(nn.Module):
    """One table for words in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4, sparse=True)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids)[..., :4])


class Lookup(nn.Module):
    """Its gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4, sparse=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.embed(ids)


class Bare(nn.Module):
    """Weights of its own, all zeros, all ones, and one that is neither."""

    def __init__(self) -> None:
        super().__init__()
        self.zeros = nn.Parameter(torch.zeros(3, 5))
        self.ones = nn.Parameter(torch.ones(5))
        self.mixed = nn.Parameter(torch.tensor([1.0, 2.0, 1.0, 2.0, 1 / 3]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.zeros * self.ones + self.mixed


class Words(nn.Module):
    """Called by keyword, an attention within."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        attended, weights = self.attention(query=x, key=x, value=x + 1)
        return self.norm(input=attended), weights


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    states: tuple[torch.Tensor, ...]
    loss: torch.Tensor | None = None


class Returns(nn.Module):
    """`what`: the form in which it returns."""

    def __init__(self, what: str):
        super().__init__()
        self.what = what
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> object:
        y = self.linear(x)
        ids = y.argmax(-1)
        return {
            "tensor": y,
            "tuple": (y, None, ids),
            "dict": {"logits.main": y, "nested": {"ids": ids}, "missing": None},
            "point": Point(y, ids),
            "dataclass": Answer(y, (y + 1, y + 2)),
            "none": None,
            "text": "no tensor",
            "ids": ids,
        }[self.what]


class Takes(nn.Module):
    """Adds up what it is given."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, *, scale: torch.Tensor | None = None) -> torch.Tensor:
        total = a + 2 * b
        return total if scale is None else total * scale


class TakesOne(nn.Module):
    """Everything in one dict."""

    def forward(self, features: dict, verbose: bool = False) -> torch.Tensor:
        return features["a"] + 2 * features["inner"]["b"]


class TakesNested(nn.Module):
    """A dict among its arguments."""

    def forward(self, a: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return a + 2 * batch["b"] + 3 * batch["c"]


class TakesAny(nn.Module):
    """By position, however many."""

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return given[0] - given[1]


class Dropping(nn.Module):
    """Dropout as a module, and by a name that another file has imported."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Dropout(0.5), nn.Dropout(0.25)
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(self.first(x))
        return helper(self.second(x), self.training)


class Recomputing(nn.Module):
    """A block whose activations the backward pass computes again."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(3, 3), Island(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


class Island(nn.Module):
    """Computes in float32 by many ways to say so."""

    def __init__(self, width: int = 4):
        super().__init__()
        self.width = width
        self.scale = nn.Parameter(torch.full((width,), 0.7, dtype=torch.float32))
        self.register_buffer("table", torch.from_numpy(np.linspace(0, 1, width, dtype=np.float32)))
        self.angles = 1.0 / 10 ** (torch.arange(width).float() / width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32) + torch.zeros(self.width, dtype=torch.float32)
        with torch.autocast("cpu", enabled=False):
            wide = functional.softmax(wide, dim=-1, dtype=torch.float32) + wide.type(torch.float32).cumsum(-1)
            wide = wide + wide.mean(-1, keepdim=True, dtype=torch.float32) + self.angles
        turned = torch.polar(torch.ones_like(self.angles), self.angles).to(torch.complex64)
        wide = wide + turned.real + torch.tensor([1 / 3], dtype=torch.float32)
        wide = wide + wide.new_full((1,), 0.1, dtype=torch.float)
        return (wide * self.scale.float() + self.table).to(x.dtype)


class Doubling(torch.autograd.Function):
    """Its gradient goes through float32."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return (2 * gradient.float()).to(gradient.dtype)


class PairContext(nn.Module):
    """Half precision on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).to(torch.bfloat16).to(x.dtype)


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), 1)


def linear_in_half() -> nn.Module:
    return nn.Linear(4, 3).half().eval()


def default_changed() -> nn.Module:
    """As transformers builds a model in the dtype of its config."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        return nn.Linear(4, 3)
    finally:
        torch.set_default_dtype(before)


def failing() -> nn.Module:
    raise RuntimeError("no such\nweights")


def no_module() -> int:
    return 3


def lazy() -> nn.Module:
    return nn.LazyLinear(3)


class Failing(nn.Module):
    """Its shapes do not fit."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(99, 1)


class Restless(nn.Module):
    """Built otherwise every time."""

    built = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).built += 1
        self.linears = nn.ModuleList(nn.Linear(3, 3) for _ in range(self.built))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def loss_of_all(outputs: dict, target: torch.Tensor) -> torch.Tensor:
    return outputs["first"].square().mean() + outputs["second"].sum() + 0 * target.sum()


def loss_of_one(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (outputs - target).abs().mean()


def not_a_number(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return outputs


def no_loss() -> float:
    return 0.0


def scheduled(parameters: list[nn.Parameter]) -> tuple[torch.optim.Optimizer, LRScheduler]:
    optimizer = torch.optim.SGD(parameters, lr=0.25)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


def momentum(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.25, momentum=0.9)


def no_optimizer(parameters: list[nn.Parameter]) -> None:
    return None


class Rehearsed(nn.Module):
    """Drops by a module and by a function; training changes one of its buffers, and the first pass fills another."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.first, self.drop, self.none, self.last = nn.Linear(3, 4), nn.Dropout(), nn.Dropout(0.0), nn.Linear(4, 2)
        self.fails = fails
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("table", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and self.fails:
            raise ValueError("not here")
        y = self.last(self.none(self.drop(self.first(x))))
        self.kept.fill_(3.0)
        if self.training:
            self.mean += y.detach().mean(0)
        return functional.dropout(y, 0.5, self.training) * self.table


def scripted(within: bool = False) -> nn.Module:
    model = torch.jit.script(nn.Linear(3, 2))
    return nn.Sequential(model) if within else model
