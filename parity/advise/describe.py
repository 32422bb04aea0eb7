"""Describe the training of a built-in case: sizes and costs, from its config and its data alone."""

import math
from typing import NamedTuple

from parity.advise import layers
from parity.advise.model import FLOAT, FREE, LONG, Block, Branch, Cost, LinearPair, Model, Shape, Tensor
from parity.advise.transformer import TransformerParts
from parity.config import schema, weights
from parity.config.models import Perceptron
from parity.core.errors import UsageError
from parity.data.batches import Dataset

Shapes = dict[str, Shape]


class Parts(NamedTuple):
    """What a model can be cut into, and the floating-point elements of its buffers."""

    blocks: tuple[Block, ...]
    branches: tuple[Branch, ...] = ()
    pairs: tuple[LinearPair, ...] = ()
    buffers: int = 0


def describe(case: schema.Case) -> Model:
    """Return the description of a built-in case. Raises UsageError if its data do not fit its model."""
    data = Dataset(case)
    shapes = {weight.name: weight.shape for weight in weights.specify(case.model)}
    samples = [array.shape[1:] for array in data.inputs]
    kind = (LONG if case.model.vocabulary else FLOAT, False)
    inputs = tuple(Tensor(math.prod(shape), *kind) for shape in samples)
    target = Tensor(math.prod(data.output_shape), FLOAT, False)
    if case.loss.kind == "cross_entropy":
        target = Tensor(math.prod(data.output_shape[:-1]), LONG, False)
    parts = _parts(case, shapes, samples)
    return Model(shapes, parts.buffers, inputs, target, parts.blocks, parts.branches, parts.pairs)


def _parts(case: schema.Case, shapes: Shapes, samples: list[Shape]) -> Parts:
    match case.model:
        case schema.LinearStack(layers=count, width=width):
            return Parts(tuple(_linear(shapes, f"layers.{i}", width, width) for i in range(count)))
        case schema.SimpleBlock() as model:
            return _simple_block(model, shapes)
        case schema.TwoLinear() as model:
            first, second = _perceptron(model, shapes)
            return Parts((first._replace(cost=first.cost + layers.relu(model.hidden)), second))
        case schema.ResidualBlock() as model:
            return _residual_block(model, shapes, math.prod(samples[0][1:]))
        case schema.Transformer() as model:
            made = TransformerParts(model, shapes, *(shape[0] for shape in samples))
            return Parts(made.blocks(), made.branches(), made.pairs())
        case other:
            raise UsageError(f"case {case.name!r}: there is no description of a {type(other).__name__}")


def of(shapes: Shapes, *prefixes: str) -> tuple[str, ...]:
    """Return the names of the weights of the modules with these paths."""
    return tuple(name for name in shapes if name.startswith(tuple(f"{prefix}." for prefix in prefixes)))


def _linear(shapes: Shapes, name: str, inputs: int, outputs: int) -> Block:
    return Block(of(shapes, name), layers.linear(inputs, outputs), (Tensor(outputs),))


def _perceptron(model: Perceptron, shapes: Shapes) -> tuple[Block, Block]:
    return (
        _linear(shapes, "linear1", model.inputs, model.hidden),
        _linear(shapes, "linear2", model.hidden, model.outputs),
    )


def _simple_block(model: schema.SimpleBlock, shapes: Shapes) -> Parts:
    first, second = _perceptron(model, shapes)
    relu = Block((), layers.relu(model.hidden), (Tensor(model.hidden),))
    hidden = Cost(FLOAT * model.hidden, first.cost.flops + relu.cost.flops + second.cost.flops)
    taken = Tensor(model.inputs, differentiable=False)
    split = FLOAT * model.hidden * (model.inputs + 1 + model.outputs)
    pair = LinearPair(model.hidden, split, hidden, taken, second.passed[0])
    return Parts((first, relu, second), pairs=(pair,))


def _residual_block(model: schema.ResidualBlock, shapes: Shapes, pixels: int) -> Parts:
    wide = model.out_channels * pixels
    image = Tensor(model.in_channels * pixels, differentiable=False)
    first = layers.convolution(model.in_channels, model.out_channels, 3, pixels) + layers.norm(wide)
    second = layers.convolution(model.out_channels, model.out_channels, 3, pixels) + layers.norm(wide)
    second += Cost(FLOAT * wide, 2.0 * wide)  # the sum, and the ReLU at the end, whose output nothing else keeps
    shortcut, returned = FREE, image
    if of(shapes, "shortcut"):
        shortcut = layers.convolution(model.in_channels, model.out_channels, 1, pixels) + layers.norm(wide)
        returned = Tensor(wide)
    blocks = (
        Block(of(shapes, "conv1", "bn1"), first + layers.relu(wide), (Tensor(wide), image)),
        Block(of(shapes, "conv2", "bn2", "shortcut"), second + shortcut, (Tensor(wide),)),
    )
    held = FLOAT * sum(math.prod(shapes[name]) for name in of(shapes, "shortcut"))
    branch = Branch(1, held, shortcut, "input", image, returned)
    norms = [name for name in shapes if name.endswith(".weight") and len(shapes[name]) == 1]
    running = sum(2 * shapes[name][0] for name in norms)  # means and variances
    return Parts(blocks, (branch,), buffers=running)
