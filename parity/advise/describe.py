"""Describe the training of a built-in case, from its config and its data alone: sizes, and what its layers cost.

What a layer keeps for the backward pass is what its derivative is made of (tools/autograd/derivatives.yaml in PyTorch):
a matrix product its input, a ReLU its output, a norm its input, a dropout its mask, an attention its queries, keys and
values. A multiplication with an addition counts as two operations.
"""

import math
from collections.abc import Iterator

from parity.advise.model import FLOAT, FREE, LONG, Block, Branch, Cost, LinearPair, Model, Shape, Tensor
from parity.config import schema, weights
from parity.core.errors import UsageError
from parity.data.batches import Dataset

Shapes = dict[str, Shape]
PROJECTIONS = 3  # of an attention: query, key and value


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
    uncut = Model(shapes, 0, inputs, target, ())
    match case.model:
        case schema.LinearStack(layers=count, width=width):
            return uncut._replace(blocks=tuple(_linear(shapes, f"layers.{i}", width, width) for i in range(count)))
        case schema.SimpleBlock() as model:
            first, second = _perceptron(model, shapes)
            between = Block((), relu(model.hidden), (Tensor(model.hidden),))
            hidden = Cost(FLOAT * model.hidden, first.cost.flops + between.cost.flops + second.cost.flops)
            taken = Tensor(model.inputs, differentiable=False)
            split = FLOAT * model.hidden * (model.inputs + 1 + model.outputs)
            pair = LinearPair(model.hidden, split, hidden, taken, second.passed[0])
            return uncut._replace(blocks=(first, between, second), pairs=(pair,))
        case schema.TwoLinear() as model:
            first, second = _perceptron(model, shapes)
            return uncut._replace(blocks=(first._replace(cost=first.cost + relu(model.hidden)), second))
        case schema.ResidualBlock() as model:
            return _residual_block(model, uncut, math.prod(samples[0][1:]))
        case schema.Transformer() as model:
            parts = TransformerParts(model, shapes, *(shape[0] for shape in samples))
            return uncut._replace(blocks=parts.blocks(), branches=parts.branches(), pairs=parts.pairs())
        case unknown:
            raise UsageError(f"case {case.name!r}: there is no description of a {type(unknown).__name__}")


def of(shapes: Shapes, *prefixes: str) -> tuple[str, ...]:
    """Return the names of the weights of the modules with these paths."""
    return tuple(name for name in shapes if name.startswith(tuple(f"{prefix}." for prefix in prefixes)))


def _linear(shapes: Shapes, name: str, inputs: int, outputs: int) -> Block:
    return Block(of(shapes, name), linear(inputs, outputs), (Tensor(outputs),))


def _perceptron(model: schema.Perceptron, shapes: Shapes) -> tuple[Block, Block]:
    first = _linear(shapes, "linear1", model.inputs, model.hidden)
    return first, _linear(shapes, "linear2", model.hidden, model.outputs)


def _residual_block(model: schema.ResidualBlock, uncut: Model, pixels: int) -> Model:
    shapes = uncut.weights
    wide = model.out_channels * pixels
    image = Tensor(model.in_channels * pixels, differentiable=False)
    first = convolution(model.in_channels, model.out_channels, 3, pixels) + norm(wide)
    second = convolution(model.out_channels, model.out_channels, 3, pixels) + norm(wide)
    second += Cost(FLOAT * wide, 2.0 * wide)  # the sum, and the ReLU at the end, whose output nothing else keeps
    shortcut, returned = FREE, image
    if of(shapes, "shortcut"):
        shortcut = convolution(model.in_channels, model.out_channels, 1, pixels) + norm(wide)
        returned = Tensor(wide)
    blocks = (
        Block(of(shapes, "conv1", "bn1"), first + relu(wide), (Tensor(wide), image)),
        Block(of(shapes, "conv2", "bn2", "shortcut"), second + shortcut, (Tensor(wide),)),
    )
    held = FLOAT * sum(math.prod(shapes[name]) for name in of(shapes, "shortcut"))
    branch = Branch(1, held, shortcut, "input", image, returned)
    norms = [name for name in shapes if name.endswith(".weight") and len(shapes[name]) == 1]
    running = sum(2 * shapes[name][0] for name in norms)  # means and variances
    return uncut._replace(blocks=blocks, branches=(branch,), buffers=running)


def linear(inputs: int, outputs: int, rows: int = 1) -> Cost:
    return Cost(FLOAT * rows * inputs, 2.0 * rows * inputs * outputs)


def relu(elements: int, copied: bool = False) -> Cost:
    """Return the cost of a ReLU. It keeps its output, which is the next layer's input unless a dropout copies it."""
    return Cost(FLOAT * elements * copied, elements)


def convolution(inputs: int, outputs: int, kernel: int, pixels: int) -> Cost:
    """Return the cost of a convolution with a square kernel that keeps the size of the image."""
    return Cost(FLOAT * pixels * inputs, 2.0 * pixels * inputs * outputs * kernel * kernel)


def norm(elements: int) -> Cost:
    """Return the cost of a batch or layer norm: mean, variance, scale and shift."""
    return Cost(FLOAT * elements, 8.0 * elements)


def dropout(elements: int, rate: float) -> Cost:
    """Return the cost of a dropout; one of rate 0 does nothing."""
    return Cost(FLOAT * elements, 2.0 * elements) if rate else FREE


def attention(queries: int, keys: int, width: int, heads: int, rate: float) -> Cost:
    """Return the cost of scaled dot-product attention between projected queries, keys and values.

    Without dropout PyTorch's fused kernels keep no probabilities. With dropout, on CPUs, it is computed step by step:
    kept are the scaled queries and keys, and the probabilities before and after their dropout, with its mask. GPUs have
    fused kernels for that too, so that this is an upper bound there (torch.nn.functional.scaled_dot_product_attention).
    """
    scores = heads * queries * keys
    kept = (queries + 2 * keys) * width
    if rate:
        kept += (queries + keys) * width + 3 * scores
    return Cost(FLOAT * kept, 4.0 * queries * keys * width + 5.0 * scores)


class TransformerParts:
    """A transformer for sequences of `source` and `target` words; a sample is one pair of sequences."""

    def __init__(self, model: schema.Transformer, shapes: dict[str, Shape], source: int, target: int) -> None:
        self.model, self.shapes = model, shapes
        self.source, self.target = source, target
        self.encoder = [f"transformer.encoder.layers.{i}" for i in range(model.encoder_layers)]
        self.decoder = [f"transformer.decoder.layers.{i}" for i in range(model.decoder_layers)]

    def blocks(self) -> tuple[Block, ...]:
        """Return a block for each layer; the embedding, the last norms and the output belong to the outer ones."""
        width, vocabulary = self.model.d_model, self.model.vocabulary
        outer = [
            (self.encoder[0], "embedding", FREE),
            (self.encoder[-1], "transformer.encoder.norm", norm(self.source * width)),
            (self.decoder[-1], "transformer.decoder.norm", norm(self.target * width)),
            (self.decoder[-1], "output", linear(width, vocabulary, self.target)),
        ]
        layers = dict.fromkeys(self.encoder, self._layer(self.source))
        layers |= dict.fromkeys(self.decoder, self._layer(self.target, crossed=True))
        blocks, passed = [], (self._tensor(self.source), self._tensor(self.target))
        for name, cost in layers.items():
            modules = [name, *(module for layer, module, _ in outer if layer == name)]
            whole = sum((own for layer, _, own in outer if layer == name), cost)
            blocks.append(Block(of(self.shapes, *modules), whole, passed))
        return (*blocks[:-1], blocks[-1]._replace(passed=(Tensor(self.target * vocabulary),)))

    def branches(self) -> tuple[Branch, ...]:
        """Return the query, key and value projections of all attentions."""
        branches: list[Branch] = []
        for name in self.encoder:
            branches += self._projections(name, self.source, name, self.source)
        for name in self.decoder:
            branches += self._projections(name, self.target, name, self.target)
            branches += self._projections(f"{name}.norm1", self.target, "memory", self.source)
        return tuple(branches)

    def pairs(self) -> tuple[LinearPair, ...]:
        hidden, width = self.model.feed_forward, self.model.d_model
        split = FLOAT * hidden * (2 * width + 1)
        words = [self.source] * len(self.encoder) + [self.target] * len(self.decoder)
        tensors = [(each, self._tensor(each)) for each in words]
        return tuple(LinearPair(hidden, split, self._hidden(each), tensor, tensor) for each, tensor in tensors)

    def _layer(self, words: int, crossed: bool = False) -> Cost:
        """Return the cost of an encoder layer or, with attention to the encoder's output, of a decoder layer."""
        elements = words * self.model.d_model
        cost = self._attention(words, words) + self._after(elements)
        if crossed:
            cost += self._attention(words, self.source) + self._after(elements)
        return cost + linear(self.model.d_model, 0, words) + self._hidden(words) + self._after(elements)

    def _after(self, elements: int) -> Cost:
        """Return the cost of what follows each part of a layer: dropout, the residual sum and its norm."""
        return dropout(elements, self.model.dropout) + norm(elements)

    def _attention(self, queries: int, keys: int) -> Cost:
        model, width = self.model, self.model.d_model
        projected = linear(width, width, queries) + linear(width, width, queries)  # query and output
        of_keys = Cost(0, 2 * linear(width, width, keys).flops)
        return projected + of_keys + attention(queries, keys, width, model.heads, model.dropout)

    def _hidden(self, words: int) -> Cost:
        """Return the cost of what works on the hidden features of a feed-forward part."""
        model, hidden = self.model, self.model.feed_forward
        flops = linear(model.d_model, hidden, words).flops
        return (
            Cost(0, flops)
            + relu(words * hidden, copied=model.dropout > 0)
            + dropout(words * hidden, model.dropout)
            + linear(hidden, model.d_model, words)
        )

    def _projections(self, query: str, queries: int, key: str, keys: int) -> Iterator[Branch]:
        width = self.model.d_model
        for number in range(PROJECTIONS):
            source, words = (key, keys) if number else (query, queries)
            cost = Cost(0, linear(width, width, words).flops)
            tensor = self._tensor(words)
            yield Branch(number, FLOAT * width * (width + 1), cost, source, tensor, tensor)

    def _tensor(self, words: int) -> Tensor:
        return Tensor(words * self.model.d_model)
