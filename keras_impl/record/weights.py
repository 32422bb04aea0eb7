"""The state of a model and its optimizer under canonical names: PyTorch's names, axis order and packing.

A layer's canonical path is its name after those of the layers around it, joined by dots; the built-in models name their
layers like the attributes of the PyTorch models. The rules below say once per kind of layer which variables form which
of PyTorch's parameters, and how their axes move.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange

from keras_impl.instruments import devices
from keras_impl.models.transformer import MultiheadAttention
from keras_impl.record import tree
from keras_impl.record.canonical import module_path
from keras_impl.strategies.tensor_parallel import ColumnParallel, RowParallel
from parity.core.arrays import Floats
from parity.trace.layout import Held
from parity.trace.tensorfile import storable


class Rule(NamedTuple):
    """How one canonical parameter is formed: its name, the layer's variables, and the einops pattern between them.

    Several variables are concatenated along `axis` after their axes have moved. `*` in a variable's path stands for
    every entry of a list.
    """

    name: str
    variables: tuple[str, ...]
    pattern: str
    axis: int = 0


LINEAR = (Rule("weight", ("kernel",), "i o -> o i"), Rule("bias", ("bias",), "o -> o"))
CONVOLUTION = (Rule("weight", ("kernel",), "h w i o -> o i h w"), Rule("bias", ("bias",), "o -> o"))
TRANSPOSED_CONVOLUTION = (Rule("weight", ("kernel",), "h w o i -> i o h w"), Rule("bias", ("bias",), "o -> o"))
NORM = (Rule("weight", ("gamma",), "c -> c"), Rule("bias", ("beta",), "c -> c"))
STATISTICS = (Rule("running_mean", ("moving_mean",), "c -> c"), Rule("running_var", ("moving_variance",), "c -> c"))
ATTENTION = (
    Rule("in_proj_weight", ("query.kernel", "key.kernel", "value.kernel"), "i o -> o i"),
    Rule("in_proj_bias", ("query.bias", "key.bias", "value.bias"), "o -> o"),
)
COLUMNS = (Rule("weight", ("shards.*.kernel",), "i o -> o i"), Rule("bias", ("shards.*.bias",), "o -> o"))
ROWS = (Rule("weight", ("shards.*.kernel",), "i o -> o i", axis=1), Rule("bias", ("bias",), "o -> o"))
# Rules by kind of layer; the first kind that matches counts.
RULES: dict[type, tuple[Rule, ...]] = {
    keras.layers.Dense: LINEAR,
    keras.layers.Conv2D: CONVOLUTION,
    keras.layers.Conv2DTranspose: TRANSPOSED_CONVOLUTION,
    keras.layers.BatchNormalization: NORM + STATISTICS,
    keras.layers.GroupNormalization: NORM,
    keras.layers.LayerNormalization: NORM,
    keras.layers.Embedding: (Rule("weight", ("embeddings",), "v d -> v d"),),
    MultiheadAttention: ATTENTION,
    ColumnParallel: COLUMNS,
    RowParallel: ROWS,
}
# The attribute of a Keras optimizer that holds each of PyTorch's optimizer slots.
SLOTS = {
    "momentum_buffer": "momentums",
    "exp_avg": "_momentums",
    "exp_avg_sq": "_velocities",
    "max_exp_avg_sq": "_velocity_hats",
    "sum": "_accumulators",
    "square_avg": "_accumulated_grads",
    "acc_delta": "_accumulated_delta_vars",
}
OTHER_SLOTS = {
    keras.optimizers.RMSprop: {
        "momentum_buffer": "_momentums",
        "square_avg": "_velocities",
        "grad_avg": "_average_gradients",
    },
    keras.optimizers.Adamax: {"exp_avg": "_m", "exp_inf": "_u"},
}


class Weight(NamedTuple):
    """A canonical parameter or buffer of a built model."""

    name: str
    variables: list[keras.Variable]
    pattern: str
    axis: int

    def canonical(self, tensors: Iterable[tf.Tensor]) -> tf.Tensor:
        """Convert values of the variables (or of anything of the same shapes, such as gradients) to canonical form.

        Uses TensorFlow ops, eagerly or in a graph: TensorFlow transposes several times as fast as NumPy.
        """
        moved = [rearrange(tensor, self.pattern) for tensor in tensors]
        return moved[0] if len(moved) == 1 else tf.concat(moved, self.axis)

    def assign(self, values: Floats) -> None:
        """Set the variables from a value in canonical form."""
        own_axes, canonical_axes = (side.split() for side in self.pattern.split("->"))
        sizes = [variable.shape[own_axes.index(canonical_axes[self.axis])] for variable in self.variables]
        parts = np.split(values, np.cumsum(sizes)[:-1], self.axis)
        for variable, part in zip(self.variables, parts, strict=True):
            value = rearrange(part, f"{' '.join(canonical_axes)} -> {' '.join(own_axes)}")
            variable.assign(tf.constant(value, variable.dtype))


class Value(NamedTuple):
    """A piece of state under its canonical name, with what it is formed from: tensors, or one array."""

    name: str
    weight: Weight | None
    tensors: list[Any]

    def numpy(self) -> np.ndarray:
        """Return the value in canonical form."""
        return self.weight.canonical(self.tensors).numpy() if self.weight else np.asarray(self.tensors[0])

    def equals(self, other: "Value") -> bool:
        """Return whether both values are bitwise equal."""
        pairs = zip(self.tensors, other.tensors, strict=True)
        return all(same_bits(np.asarray(own), np.asarray(others)) for own, others in pairs)


def load(model: keras.Model, weights: Mapping[str, Floats]) -> None:
    """Set every parameter; raises ValueError unless the model's have exactly the names and shapes of `weights`."""
    own = {weight.name: weight for weight in _weights(model, trainable=True)}
    expected = {name: tuple(values.shape) for name, values in weights.items()}
    received = {value.name: tuple(value.numpy().shape) for value in Weights(model).parameters()}
    if received != expected:
        raise ValueError(f"the model has the parameters {received}, expected {expected} (parity/config/weights.py)")
    for name, values in weights.items():
        own[name].assign(values)


class Weights:
    """The state of a built-in model and its optimizer; `copy_index` counts the variables' copies in this process."""

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer | None = None, copy_index: int = 0):
        self.model, self.optimizer, self.copy_index = model, optimizer, copy_index

    def parameters(self, trainable: bool = True) -> Iterator[Value]:
        """Yield every parameter, or else every variable that is not trained."""
        for weight in _weights(self.model, trainable):
            yield Value(weight.name, weight, self._values(weight.variables))

    def optimizer_state(self) -> Iterator[Value]:
        """Yield the learning rate of the next step, and every slot as `parameter.slot`."""
        if self.optimizer is not None:
            yield Value("learning_rate", None, [np.asarray(self.optimizer.learning_rate, np.float64)])
            for weight, slot, variables in self._slots():
                yield Value(f"{weight.name}.{slot}", weight, self._values(variables))

    def state(self, wants: Callable[[str], bool]) -> Iterator[tuple[str, Value]]:
        """Yield (kind, value) of all state of the kinds that are wanted."""
        untrained = self.parameters(trainable=False)
        kinds = {"parameter": self.parameters(), "buffer": untrained, "optimizer_state": self.optimizer_state()}
        for kind, values in kinds.items():
            for value in values if wants(kind) else ():
                yield kind, value

    def gradients(self, values: Mapping[int, tf.Tensor]) -> Iterator[tuple[str, tf.Tensor]]:
        """Yield (name, gradient) of every parameter that has one; `values` holds them by id(variable)."""
        for weight in _weights(self.model, trainable=True):
            if all(id(variable) in values for variable in weight.variables):
                yield weight.name, weight.canonical([values[id(variable)] for variable in weight.variables])

    def held(self) -> tuple[dict[str, Held], dict[str, Held]]:
        """Return which devices hold each parameter and each slot."""
        trained = _weights(self.model, trainable=True)
        parameters = {weight.name: self._held(weight.variables) for weight in trained}
        slots = {f"{weight.name}.{slot}": self._held(held) for weight, slot, held in self._slots()}
        return parameters, slots

    def _slots(self) -> Iterator[tuple[Weight, str, list[keras.Variable]]]:
        optimizer = self.optimizer
        for weight in _weights(self.model, trainable=True):
            for slot, attribute in SLOTS.items():
                if held := getattr(optimizer, attribute, None):
                    yield weight, slot, [held[optimizer._get_variable_index(variable)] for variable in weight.variables]

    def _values(self, variables: list[keras.Variable]) -> list[tf.Tensor]:
        return [tf.convert_to_tensor(self._copies(variable)[self.copy_index]) for variable in variables]

    def _held(self, variables: list[keras.Variable]) -> Held:
        """Return where the copies of variables are that together are one tensor in torch."""
        sizes = [math.prod(variable.shape) for variable in variables]
        copies = [
            (devices.number(copy.device), size)
            for variable, size in zip(variables, sizes, strict=True)
            for copy in self._copies(variable)
        ]
        return Held([(device, size) for device, size in copies if device is not None], sum(sizes))

    def _copies(self, variable: keras.Variable) -> tuple[tf.Variable, ...]:
        """Return the variable's copies, one per replica of this process; without a strategy, the variable alone."""
        return self.model.distribute_strategy.experimental_local_results(variable.value)


def array(tensor: Any) -> np.ndarray:
    """Return a tensor as a trace can store it: complex numbers as pairs of reals, integers with 32 or 64 bits."""
    # Not np.asarray of the tensor itself, which fails for a bfloat16 scalar.
    values = np.asarray(tf.convert_to_tensor(tensor).numpy())
    return storable(np.stack([values.real, values.imag], -1) if values.dtype.kind == "c" else values)


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Return whether two arrays of one shape hold the same bytes."""
    return np.array_equal(left.reshape(-1).view(np.uint8), right.reshape(-1).view(np.uint8))


def _weights(model: keras.Model, trainable: bool) -> Iterator[Weight]:
    """Yield the canonical parameters (or else buffers) of a built model, by the rules of its layers."""
    for path, layer in tree.named(model).items():
        for part_path, part in _parts(module_path(path), layer):
            for rule in _rules(part):
                variables = [variable for name in rule.variables for variable in _attributes(part, name)]
                if variables[0].trainable == trainable:
                    yield Weight(module_path(tree.joined(part_path, rule.name)), variables, rule.pattern, rule.axis)


def _parts(path: str, layer: keras.Layer) -> Iterator[tuple[str, keras.Layer]]:
    """Yield a layer, and the inner layers (out_proj) that its rules leave out if it is one of tree.WHOLE."""
    yield path, layer
    if isinstance(layer, tree.WHOLE):
        names = [name for rule in _rules(layer) for name in rule.variables]
        used = {id(variable) for name in names for variable in _attributes(layer, name)}
        for child_path, child in tree.named(layer).items():
            if child_path and "/" not in child_path and used.isdisjoint(map(id, child.variables)):
                yield module_path(tree.joined(path, child_path)), child


def _rules(layer: keras.Layer) -> tuple[Rule, ...]:
    return next((rules for kind, rules in RULES.items() if isinstance(layer, kind)), ())


def _attributes(layer: keras.Layer, path: str) -> list[keras.Variable]:
    values: list[Any] = [layer]
    for name in path.split("."):
        values = [value for owner in values for value in (owner if name == "*" else [getattr(owner, name)])]
    return values
