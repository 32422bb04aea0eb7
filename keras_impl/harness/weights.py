"""The state of a model and its optimizer under canonical names: PyTorch's names, axes and order.

A layer's canonical path is the names of the layers around it joined by dots, so that a Keras model
whose layers are named as PyTorch's attributes needs no table of its own: the rules below say, once
for each kind of layer, which variables make which of PyTorch's parameters and how axes move.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange

from keras_impl.models.transformer import MultiheadAttention
from parity.random import Floats
from parity.trace.manifest import Layout

Named = Iterator[tuple[str, np.ndarray]]


class Rule(NamedTuple):
    """One canonical parameter: its name, the variables it is made of, and the way there (einops).

    Several variables are stacked on a new first axis before the axes move.
    """

    name: str
    variables: tuple[str, ...]
    pattern: str


LINEAR = (Rule("weight", ("kernel",), "i o -> o i"), Rule("bias", ("bias",), "o -> o"))
CONVOLUTION = (Rule("weight", ("kernel",), "h w i o -> o i h w"), Rule("bias", ("bias",), "o -> o"))
NORM = (Rule("weight", ("gamma",), "c -> c"), Rule("bias", ("beta",), "c -> c"))
STATISTICS = (Rule("running_mean", ("moving_mean",), "c -> c"), Rule("running_var", ("moving_variance",), "c -> c"))
ATTENTION = (
    Rule("in_proj_weight", ("query.kernel", "key.kernel", "value.kernel"), "three i o -> (three o) i"),
    Rule("in_proj_bias", ("query.bias", "key.bias", "value.bias"), "three o -> (three o)"),
)

# Kind of layer to its rules; the first kind that fits counts.
RULES: dict[type, tuple[Rule, ...]] = {
    keras.layers.Dense: LINEAR,
    keras.layers.Conv2D: CONVOLUTION,
    keras.layers.BatchNormalization: NORM + STATISTICS,
    keras.layers.LayerNormalization: NORM,
    keras.layers.Embedding: (Rule("weight", ("embeddings",), "v d -> v d"),),
    MultiheadAttention: ATTENTION,
}
# Layers inside these are parts of one PyTorch module: they have no activations of their own there,
# and all that is not in a rule of the whole (an out_proj) keeps its own name.
WHOLE = (MultiheadAttention,)
# PyTorch's name of each optimizer slot, and the attribute that holds it in Keras.
SLOTS = {"momentum_buffer": "momentums", "exp_avg": "_momentums", "exp_avg_sq": "_velocities"}


class Weight(NamedTuple):
    """A canonical parameter or buffer of a built model."""

    name: str
    variables: list[keras.Variable]
    pattern: str

    def canonical(self, tensors: Iterable[tf.Tensor]) -> tf.Tensor:
        """Values of the variables (or of anything shaped alike) in canonical form.

        By TensorFlow's ops, eager or in a graph: its transposition is several times as fast as NumPy's.
        """
        tensors = list(tensors)
        return rearrange(tensors if len(tensors) > 1 else tensors[0], self.pattern)

    def assign(self, values: Floats) -> None:
        """Set the variables from a canonical value."""
        here, there = self.pattern.split("->")
        sizes = {"three": len(self.variables)} if "three" in here else {}
        own = rearrange(values, f"{there} -> {here}", **sizes)
        for variable, value in zip(self.variables, own if sizes else [own], strict=True):
            variable.assign(tf.constant(value, variable.dtype))


def load(model: keras.Model, weights: dict[str, Floats]) -> None:
    """Give every parameter its initial value. Raises ValueError unless names and shapes agree."""
    own = {weight.name: weight for weight in _weights(model, trainable=True)}
    expected = {name: tuple(values.shape) for name, values in weights.items()}
    received = {name: tuple(weight.canonical(_values(weight)).shape) for name, weight in own.items()}
    if received != expected:
        raise ValueError(f"the model has the parameters {received}, expected {expected} (parity/config/weights.py)")
    for name, values in weights.items():
        own[name].assign(values)


def parameters(model: keras.Model) -> Named:
    """Every parameter."""
    for weight in _weights(model, trainable=True):
        yield weight.name, weight.canonical(_values(weight)).numpy()


def buffers(model: keras.Model) -> Named:
    """Every variable that is not trained."""
    for weight in _weights(model, trainable=False):
        yield weight.name, weight.canonical(_values(weight)).numpy()


def gradients(model: keras.Model, values: dict[str, tf.Tensor]) -> Iterator[tuple[str, tf.Tensor]]:
    """The gradient of every parameter that has one; `values` by the paths of the variables."""
    for weight in _weights(model, trainable=True):
        if all(variable.path in values for variable in weight.variables):
            yield weight.name, weight.canonical(values[variable.path] for variable in weight.variables)


def optimizer_state(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Named:
    """The learning rate of the next step, and `parameter.slot` for every slot."""
    yield "learning_rate", np.asarray(optimizer.learning_rate, np.float64)
    for weight in _weights(model, trainable=True):
        for slot, attribute in SLOTS.items():
            if held := getattr(optimizer, attribute, None):
                values = [held[optimizer._get_variable_index(variable)].value for variable in weight.variables]
                yield f"{weight.name}.{slot}", weight.canonical(values).numpy()


def layout(model: keras.Model) -> Layout:
    """The logical devices, and which of them hold each parameter."""
    devices = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    held = {
        weight.name: sorted({_device(variable) for variable in weight.variables})
        for weight in _weights(model, trainable=True)
    }
    return Layout(devices=devices, parameters=held)


def named_layers(layer: keras.Layer, path: str = "") -> Iterator[tuple[str, keras.Layer]]:
    """Every layer that is a module of the PyTorch side, with its canonical path; the model has ""."""
    yield path, layer
    if not isinstance(layer, WHOLE):
        for child in _children(layer):
            yield from named_layers(child, _join(path, child.name))


def _values(weight: Weight) -> list[tf.Tensor]:
    return [tf.convert_to_tensor(variable) for variable in weight.variables]


def _weights(model: keras.Model, trainable: bool) -> Iterator[Weight]:
    for path, layer in named_layers(model):
        for part_path, part in _parts(path, layer):
            for rule in _rules(part):
                variables = [_attribute(part, name) for name in rule.variables]
                if variables[0].trainable == trainable:
                    yield Weight(_join(part_path, rule.name), variables, rule.pattern)


def _parts(path: str, layer: keras.Layer) -> Iterator[tuple[str, keras.Layer]]:
    """A layer, and of a whole also those layers whose variables no rule of the whole uses."""
    yield path, layer
    if isinstance(layer, WHOLE):
        used = {name.partition(".")[0] for rule in _rules(layer) for name in rule.variables}
        for child in _children(layer):
            if child.name not in used:
                yield _join(path, child.name), child


def _rules(layer: keras.Layer) -> tuple[Rule, ...]:
    return next((rules for kind, rules in RULES.items() if isinstance(layer, kind)), ())


def _children(layer: keras.Layer) -> list[keras.Layer]:
    return list({id(child): child for child in layer._layers}.values())


def _attribute(layer: keras.Layer, path: str) -> keras.Variable:
    found: Callable = layer
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _device(variable: keras.Variable) -> int:
    return tf.DeviceSpec.from_string(variable.value.device).device_index


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
