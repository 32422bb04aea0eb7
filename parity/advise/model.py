"""What the formulas need to know of a training: its tensors by size, its weights, and where it can be cut.

All sizes are those of one sample, so that a strategy can multiply them by the samples that a device has. A user's pair
is described by its recorded training on a single device.
"""

import math
import operator
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from parity.config.base import BaseModel, Positive
from parity.config.devices import Kind
from parity.config.schema import Case
from parity.core.arrays import Array
from parity.core.errors import BackendError, UsageError
from parity.pairs.compare import compared
from parity.pairs.file import PairFile
from parity.pairs.prepare import place
from parity.runtime.runner import Runner
from parity.trace import keys
from parity.trace.manifest import Trace
from parity.trace.mapping import PairContext

Shape = tuple[int, ...]
Arrays = dict[str, Array]
FLOAT, LONG = 4, 8  # bytes of a float32 and of an int64


class Tensor(NamedTuple):
    """A tensor that the training passes on: its elements for one sample, and whether a gradient comes back for it."""

    elements: int
    itemsize: int = FLOAT
    differentiable: bool = True

    @property
    def bytes(self) -> int:
        return self.elements * self.itemsize


class Cost(NamedTuple):
    """What a part of a model costs for one sample."""

    kept: float  # bytes that the forward pass keeps for the backward pass
    # Floating-point operations of the forward pass; the backward pass, for inputs and weights, has twice as many.
    flops: float

    def __add__(self, other: Iterable[Any]) -> "Cost":
        return Cost(*map(operator.add, self, other))


FREE = Cost(0, 0)


class Block(NamedTuple):
    """One of the consecutive blocks that a model can be cut into; `passed` is what it hands to the next one."""

    weights: tuple[str, ...]
    cost: Cost
    passed: tuple[Tensor, ...]


class Branch(NamedTuple):
    """A module that can run beside others, on device `number` modulo the number of devices."""

    number: int
    weights: int  # the bytes of its weights
    cost: Cost
    source: str  # names what it takes, so that two branches that take the same tensor are known
    taken: Tensor
    returned: Tensor


class LinearPair(NamedTuple):
    """Two linear layers of which the first can be split by columns and the second by rows, over `hidden` features."""

    hidden: int
    weights: int  # the bytes of those that are split
    cost: Cost  # that of all that works on the hidden features
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
        return self.blocks[-1].passed[0]

    @property
    def cost(self) -> Cost:
        return sum((block.cost for block in self.blocks), FREE)

    @property
    def data(self) -> int:
        """Return the bytes of one sample's inputs and target, and of the output with its gradient."""
        return sum(tensor.bytes for tensor in (*self.inputs, self.target, self.output, self.output))

    def size(self, names: tuple[str, ...] | None = None) -> int:
        """Return the bytes of the named weights, by default of all."""
        return FLOAT * sum(math.prod(self.weights[name]) for name in (self.weights if names is None else names))


MEMBER = re.compile(r"(?:.*?\.)??\d+(?=\.|$)")  # a member of a numbered list of modules, such as encoder.layers.3
MULTIPLY_ADD = 2.0


class PairModel(BaseModel, frozen=True, tag="pair_model"):
    """What stands for a pair's model in a prediction: any strategy may spread its blocks."""

    blocks: Positive = 1


def recorded(
    file: PairFile, pythons: dict[str, str], kind: Kind, patience: float, folder: Path
) -> tuple[Case, Model, PairContext]:
    """Record a pair on one device: case, description, context. Raises UsageError, BackendError and MissingError."""
    with Runner.of(pythons, folder, kind, patience) as runner:
        result = compared(file, runner.sides, folder / file.case.name, varied=False)
    if result.verdict == "error":
        raise (UsageError if result.error == "usage" else BackendError)(f"{file.case.name}: {result.reason}")
    folder = folder / file.case.name
    model, batch = described(Trace(folder / "torch"))
    data = msgspec.structs.replace(file.case.data, batch=batch)
    case = msgspec.structs.replace(file.case, model=PairModel(blocks=len(model.blocks)), data=data)
    return case, model, Trace(folder / "keras").manifest.context(file.search, str(place(folder, "torch")))


def described(trace: Trace) -> tuple[Model, int]:
    """Return the description of a recorded training, and the number of samples in its batch.

    The samples are on the first axis of the first input. What a module returns counts as kept for the backward pass.
    """
    steps = [stem for stem in trace.stems("low") if keys.step_of(stem) is not None]
    state = trace.open("low", keys.INITIAL) if keys.INITIAL in trace.stems("low") else {}
    step = trace.open("low", steps[0])
    aliases = trace.manifest.aliases.get(f"low/rank-0/{steps[0]}", {})
    shapes = {name: array.shape for name, array in keys.of_kind({**step, **state}, "parameter").items()}
    outputs = keys.of_kind(step, "activation")
    own = {name: array for name, array in outputs.items() if f"activation/{name}" not in aliases}
    given = keys.of_kind(step, "input")
    inputs = [array for name, array in given.items() if name.partition(".")[0].partition("#")[0] == "input"]
    batch = len(inputs[0]) if inputs and inputs[0].ndim else 1
    target = given.get("target", next(iter(outputs.values())))
    model = Model(
        weights=shapes,
        buffers=sum(array.size for array in keys.of_kind(step, "buffer").values() if array.dtype.kind == "f"),
        inputs=tuple(_tensor(array, batch)._replace(differentiable=False) for array in inputs),
        target=_tensor(target, batch)._replace(differentiable=False),
        blocks=_blocks(shapes, own, outputs, batch),
    )
    return model, batch


def _blocks(shapes: dict[str, Shape], own: Arrays, outputs: Arrays, batch: int) -> tuple[Block, ...]:
    """Return a block for each member of the numbered lists of modules that hold weights, in the order of execution.

    What belongs to no member is in the first block if it comes before all of them, else in that of the one before it.
    """
    members = dict.fromkeys(match[0] for match in map(MEMBER.match, shapes) if match)
    known = [member for member in members if member in outputs] or [""]
    last = list(outputs.values())[-1]
    weights: dict[str, list[str]] = {member: [] for member in known}
    kept: dict[str, list[str]] = {member: [] for member in known}
    for names, held in ((shapes, weights), (own, kept)):
        current = known[0]
        for name in names:
            match = MEMBER.match(name)
            current = match[0] if match and match[0] in held else current
            held[current].append(name)
    blocks = []
    for member in known:
        flops = sum(_flops(shapes[name], outputs.get(name.rpartition(".")[0])) for name in weights[member])
        cost = Cost(sum(own[name].nbytes for name in kept[member]) / batch, flops / batch)
        passed = last if member == known[-1] else outputs[member]
        blocks.append(Block(tuple(weights[member]), cost, (_tensor(passed, batch),)))
    return tuple(blocks)


def _flops(weight: tuple[int, ...], output: Array | None) -> float:
    """Return the operations of a linear or convolutional layer: each element it returns has a product per input."""
    return MULTIPLY_ADD * output.size * math.prod(weight[1:]) if output is not None and len(weight) > 1 else 0.0


def _tensor(array: Array, batch: int) -> Tensor:
    return Tensor(array.size // batch, array.itemsize, array.dtype.kind == "f")
