"""The initial weights of each built-in model: canonical names, shapes and values, the same for both sides.

Names and shapes are those of the PyTorch model's state_dict. The distributions are PyTorch's
defaults (torch.nn.Linear, Conv2d, Embedding, BatchNorm2d, LayerNorm; torch.nn.Transformer, which
fills every matrix with xavier_uniform_). Buffers are not listed: the layers initialise them.
"""

import functools
import math
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from parity.config import schema
from parity.core import random
from parity.core.arrays import Floats

Shape = tuple[int, ...]
Draw = Callable[[int, str, Shape], Floats]


class Weight(NamedTuple):
    """A parameter's canonical name, its shape, and the function that draws its initial values."""

    name: str
    shape: Shape
    draw: Draw


def initial(case: schema.Case) -> dict[str, Floats]:
    """Return the initial parameters of the case's model by canonical name, representable at its run precision."""
    drawn = {}
    for weight in specify(case.model):
        values = weight.draw(case.seed, weight.name, weight.shape) * case.weight_scale.get(weight.name, 1.0)
        drawn[weight.name] = random.representable(values, case.precision)
    return drawn


class Nudged(UserDict[str, Floats]):
    """The initial weights of the witness run: each moved by one float64 ulp, computed on access."""

    def __init__(self, weights: Mapping[str, Floats], seed: int) -> None:
        super().__init__(weights)
        self._seed = seed

    def __getitem__(self, name: str) -> Floats:
        return random.one_ulp_away(self.data[name], self._seed, f"witness/{name}")


def specify(model: schema.Model) -> Iterator[Weight]:
    """Yield the weights of a model in the order of its state_dict."""
    match model:
        case schema.LinearStack():
            for i in range(model.layers):
                yield from _linear(f"layers.{i}", model.width, model.width)
        case schema.SimpleBlock() | schema.TwoLinear():
            yield from _linear("linear1", model.inputs, model.hidden)
            yield from _linear("linear2", model.hidden, model.outputs)
        case schema.ResidualBlock():
            yield from _residual_block(model)
        case schema.Transformer():
            yield from _transformer(model)
        case schema.Specimen():
            yield from _specimen(model)


def _constant(value: float) -> Draw:
    return lambda seed, name, shape: np.full(shape, value)


def _xavier(seed: int, name: str, shape: Shape) -> Floats:
    """Draw as torch.nn.init.xavier_uniform_ does: bound sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return random.uniform(seed, name, shape, math.sqrt(6.0 / sum(shape)))


def _layer(name: str, shape: Shape, outputs: int, fan_in: int) -> Iterator[Weight]:
    """Yield weight and bias, both uniform within 1 / sqrt(fan_in), which kaiming_uniform_(a=sqrt(5)) amounts to."""
    draw = functools.partial(random.uniform, bound=1.0 / math.sqrt(fan_in))
    yield Weight(f"{name}.weight", shape, draw)
    yield Weight(f"{name}.bias", (outputs,), draw)


def _linear(name: str, inputs: int, outputs: int) -> Iterator[Weight]:
    return _layer(name, (outputs, inputs), outputs, inputs)


def _convolution(name: str, inputs: int, outputs: int, kernel: int) -> Iterator[Weight]:
    return _layer(name, (outputs, inputs, kernel, kernel), outputs, inputs * kernel * kernel)


def _norm(name: str, size: int) -> Iterator[Weight]:
    yield Weight(f"{name}.weight", (size,), _constant(1.0))
    yield Weight(f"{name}.bias", (size,), _constant(0.0))


def _residual_block(model: schema.ResidualBlock) -> Iterator[Weight]:
    inputs, outputs = model.in_channels, model.out_channels
    yield from _convolution("conv1", inputs, outputs, 3)
    yield from _norm("bn1", outputs)
    yield from _convolution("conv2", outputs, outputs, 3)
    yield from _norm("bn2", outputs)
    if inputs != outputs:
        yield from _convolution("shortcut.0", inputs, outputs, 1)
        yield from _norm("shortcut.1", outputs)


def _transformer(model: schema.Transformer) -> Iterator[Weight]:
    d = model.d_model
    yield Weight("embedding.weight", (model.vocabulary, d), random.normal)
    for i in range(model.encoder_layers):
        yield from _transformer_layer(f"transformer.encoder.layers.{i}", model, ["self_attn"])
    yield from _norm("transformer.encoder.norm", d)
    for i in range(model.decoder_layers):
        yield from _transformer_layer(f"transformer.decoder.layers.{i}", model, ["self_attn", "multihead_attn"])
    yield from _norm("transformer.decoder.norm", d)
    yield from _linear("output", d, model.vocabulary)


def _transformer_layer(name: str, model: schema.Transformer, attentions: list[str]) -> Iterator[Weight]:
    d = model.d_model
    for attention in attentions:
        yield Weight(f"{name}.{attention}.in_proj_weight", (3 * d, d), _xavier)
        yield Weight(f"{name}.{attention}.in_proj_bias", (3 * d,), _constant(0.0))
        yield Weight(f"{name}.{attention}.out_proj.weight", (d, d), _xavier)
        yield Weight(f"{name}.{attention}.out_proj.bias", (d,), _constant(0.0))
    for linear, sizes in (("linear1", (d, model.feed_forward)), ("linear2", (model.feed_forward, d))):
        weight, bias = _linear(f"{name}.{linear}", *sizes)
        yield weight._replace(draw=_xavier)
        yield bias
    for i in range(len(attentions) + 1):
        yield from _norm(f"{name}.norm{i + 1}", d)


def _specimen(model: schema.Specimen) -> Iterator[Weight]:
    yield from _convolution("conv", 3, 8, 3)
    yield from _norm("group_norm", 8)
    # PyTorch computes the fan-in from axis 1 of the weight, in a transposed convolution the output channels.
    yield from _layer("up", (8, 8, 2, 2), 8, 8 * 2 * 2)
    yield from _linear("linear", 512, 512)
    yield from _linear("head", 512, model.classes)
