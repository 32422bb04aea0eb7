"""What the formulas need to know of a training: its tensors by size, its weights, and where it can be cut.

All sizes are those of one sample, so that a strategy can multiply them by the samples that a device has.
"""

import math
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

Shape = tuple[int, ...]
FLOAT, LONG = 4, 8  # bytes of a float32 and of an int64


class Tensor(NamedTuple):
    """A tensor that the training passes on: its elements for one sample, and whether a gradient comes back for it."""

    elements: int
    itemsize: int = FLOAT
    differentiable: bool = True

    @property
    def bytes(self) -> int:
        """Return its bytes for one sample."""
        return self.elements * self.itemsize


class Cost(NamedTuple):
    """What a part of a model costs for one sample.

    `kept`: bytes that the forward pass keeps for the backward pass. `flops`: floating-point operations of the forward
    pass; the backward pass has twice as many, for the gradients of the inputs and of the weights.
    """

    kept: float
    flops: float

    def __add__(self, other: Iterable[Any]) -> "Cost":
        """Return the cost of both parts."""
        return Cost(*map(operator.add, self, other))


FREE = Cost(0, 0)


class Block(NamedTuple):
    """One of the consecutive blocks that a model can be cut into; `passed` is what it hands to the next one."""

    weights: tuple[str, ...]
    cost: Cost
    passed: tuple[Tensor, ...]


class Branch(NamedTuple):
    """A module that can run beside others, on device `number` modulo the number of devices.

    `weights`: the bytes of its weights. `source` names what it takes, so that two branches that take the same tensor
    are known.
    """

    number: int
    weights: int
    cost: Cost
    source: str
    taken: Tensor
    returned: Tensor


class LinearPair(NamedTuple):
    """Two linear layers of which the first can be split by columns and the second by rows, over `hidden` features.

    `weights`: the bytes of those that are split. `cost`: that of all that works on the hidden features.
    """

    hidden: int
    weights: int
    cost: Cost
    taken: Tensor
    returned: Tensor


class Model(NamedTuple):
    """A model with its data. `buffers`: the floating-point elements of its buffers."""

    weights: dict[str, Shape]
    buffers: int
    inputs: tuple[Tensor, ...]
    target: Tensor
    blocks: tuple[Block, ...]
    branches: tuple[Branch, ...] = ()
    pairs: tuple[LinearPair, ...] = ()

    @property
    def output(self) -> Tensor:
        """Return the model's output."""
        return self.blocks[-1].passed[0]

    @property
    def cost(self) -> Cost:
        """Return the cost of the whole model."""
        return sum((block.cost for block in self.blocks), FREE)

    @property
    def data(self) -> int:
        """Return the bytes of one sample's inputs and target, and of the output with its gradient."""
        return sum(tensor.bytes for tensor in (*self.inputs, self.target, self.output, self.output))

    def size(self, names: tuple[str, ...] | None = None) -> int:
        """Return the bytes of the named weights, by default of all."""
        chosen = self.weights if names is None else names
        return FLOAT * sum(math.prod(self.weights[name]) for name in chosen)
