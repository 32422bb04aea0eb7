"""The state of a model and its optimizer under canonical names: PyTorch's names, axes and order.

A layer's canonical path is the names of the layers around it joined by dots, so that a Keras model
whose layers are named as PyTorch's attributes needs no table of its own: the rules below say, once
for each kind of layer, which variables make which of PyTorch's parameters and how axes move.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from einops import rearrange

from keras_impl.models.transformer import MultiheadAttention
from keras_impl.strategies.tensor_parallel import ColumnParallel, RowParallel, SplitDropout
from parity.core.arrays import Floats


class Rule(NamedTuple):
    """One canonical parameter: its name, the variables it is made of, and the way there (einops).

    Several variables are joined along `axis` once their axes have moved; `*` stands for each of a list.
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

# Kind of layer to its rules; the first kind that fits counts.
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
# Layers inside these are parts of one PyTorch module: they have no activations of their own there,
# and all that is not in a rule of the whole (an out_proj) keeps its own name.
WHOLE = (MultiheadAttention, ColumnParallel, RowParallel, SplitDropout)
# PyTorch's name of each optimizer slot, and the attribute that holds it in Keras.
SLOTS = {"momentum_buffer": "momentums", "exp_avg": "_momentums", "exp_avg_sq": "_velocities"}


class Weight(NamedTuple):
    """A canonical parameter or buffer of a built model."""

    name: str
    variables: list[keras.Variable]
    pattern: str
    axis: int

    def canonical(self, tensors: Iterable[tf.Tensor]) -> tf.Tensor:
        """Values of the variables (or of anything shaped alike) in canonical form.

        By TensorFlow's ops, eager or in a graph: its transposition is several times as fast as NumPy's.
        """
        moved = [rearrange(tensor, self.pattern) for tensor in tensors]
        return moved[0] if len(moved) == 1 else tf.concat(moved, self.axis)

    def assign(self, values: Floats) -> None:
        """Set the variables from a canonical value."""
        here, there = (side.split() for side in self.pattern.split("->"))
        sizes = [variable.shape[here.index(there[self.axis])] for variable in self.variables]
        parts = np.split(values, np.cumsum(sizes)[:-1], self.axis)
        for variable, part in zip(self.variables, parts, strict=True):
            own = rearrange(part, f"{' '.join(there)} -> {' '.join(here)}")
            variable.assign(tf.constant(own, variable.dtype))


class Value(NamedTuple):
    """A tensor of the state under its canonical name, and what it is made of."""

    name: str
    weight: Weight | None
    tensors: list[tf.Tensor]

    def numpy(self) -> np.ndarray:
        """In canonical form."""
        return (self.weight.canonical(self.tensors) if self.weight else self.tensors[0]).numpy()

    def equals(self, other: "Value") -> bool:
        """Whether both are the same bit by bit."""
        pairs = zip(self.tensors, other.tensors, strict=True)
        return all(same_bits(here.numpy(), there.numpy()) for here, there in pairs)


def load(model: keras.Model, weights: Mapping[str, Floats]) -> None:
    """Give every parameter its initial value. Raises ValueError unless names and shapes agree."""
    own = {weight.name: weight for weight in _weights(model, trainable=True)}
    expected = {name: tuple(values.shape) for name, values in weights.items()}
    received = {name: tuple(weight.canonical(_values(model, weight.variables)).shape) for name, weight in own.items()}
    if received != expected:
        raise ValueError(f"the model has the parameters {received}, expected {expected} (parity/config/weights.py)")
    for name, values in weights.items():
        own[name].assign(values)


def parameters(model: keras.Model, replica: int = 0) -> Iterator[Value]:
    """Every parameter; `replica`: among those of this process."""
    for weight in _weights(model, trainable=True):
        yield Value(weight.name, weight, _values(model, weight.variables, replica))


def buffers(model: keras.Model, replica: int = 0) -> Iterator[Value]:
    """Every variable that is not trained."""
    for weight in _weights(model, trainable=False):
        yield Value(weight.name, weight, _values(model, weight.variables, replica))


def gradients(model: keras.Model, values: dict[int, tf.Tensor]) -> Iterator[tuple[str, tf.Tensor]]:
    """The gradient of every parameter that has one; `values` by the ids of the variables."""
    for weight in _weights(model, trainable=True):
        if all(id(variable) in values for variable in weight.variables):
            yield weight.name, weight.canonical([values[id(variable)] for variable in weight.variables])


def optimizer_state(model: keras.Model, optimizer: keras.optimizers.Optimizer, replica: int = 0) -> Iterator[Value]:
    """The learning rate of the next step, and `parameter.slot` for every slot."""
    yield Value("learning_rate", None, [tf.constant(np.asarray(optimizer.learning_rate, np.float64))])
    for weight, slot, variables in _slots(model, optimizer):
        yield Value(f"{weight.name}.{slot}", weight, _values(model, variables, replica))


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of one shape hold the same bytes."""
    return np.array_equal(one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8))


def residents(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The devices that hold each parameter and each slot, by TensorFlow's names."""
    parameters = {weight.name: _devices(model, weight.variables) for weight in _weights(model, trainable=True)}
    slots = {f"{weight.name}.{slot}": _devices(model, held) for weight, slot, held in _slots(model, optimizer)}
    return parameters, slots


def named_layers(layer: keras.Layer, path: str = "") -> Iterator[tuple[str, keras.Layer]]:
    """Every layer that is a module of the PyTorch side, with its canonical path; the model has "".

    A layer that stands in several places has its first path, as in PyTorch's named_modules.
    """
    named: dict[int, tuple[str, keras.Layer]] = {}
    for each in _placed(layer, path):
        named.setdefault(id(each[1]), each)
    yield from named.values()


def _slots(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> Iterator[tuple[Weight, str, list[keras.Variable]]]:
    for weight in _weights(model, trainable=True):
        for slot, attribute in SLOTS.items():
            if held := getattr(optimizer, attribute, None):
                yield weight, slot, [held[optimizer._get_variable_index(variable)] for variable in weight.variables]


def _values(model: keras.Model, variables: list[keras.Variable], replica: int = 0) -> list[tf.Tensor]:
    return [tf.convert_to_tensor(_copies(model, variable)[replica]) for variable in variables]


def _devices(model: keras.Model, variables: list[keras.Variable]) -> list[str]:
    return [copy.device for variable in variables for copy in _copies(model, variable)]


def _copies(model: keras.Model, variable: keras.Variable) -> tuple[tf.Variable, ...]:
    """One for each of this process's replicas under a tf.distribute strategy, else the variable itself."""
    return model.distribute_strategy.experimental_local_results(variable.value)


def _weights(model: keras.Model, trainable: bool) -> Iterator[Weight]:
    for path, layer in named_layers(model):
        for part_path, part in _parts(path, layer):
            for rule in _rules(part):
                variables = [variable for name in rule.variables for variable in _attributes(part, name)]
                if variables[0].trainable == trainable:
                    yield Weight(_join(part_path, rule.name), variables, rule.pattern, rule.axis)


def _parts(path: str, layer: keras.Layer) -> Iterator[tuple[str, keras.Layer]]:
    """A layer, and of a whole also those layers whose variables no rule of the whole uses."""
    yield path, layer
    if isinstance(layer, WHOLE):
        names = [name for rule in _rules(layer) for name in rule.variables]
        used = {id(variable) for name in names for variable in _attributes(layer, name)}
        for child in _children(layer):
            if used.isdisjoint(map(id, child.variables)):
                yield _join(path, child.name), child


def _rules(layer: keras.Layer) -> tuple[Rule, ...]:
    return next((rules for kind, rules in RULES.items() if isinstance(layer, kind)), ())


def _placed(layer: keras.Layer, path: str) -> Iterator[tuple[str, keras.Layer]]:
    yield path, layer
    if not isinstance(layer, WHOLE):
        for child in _children(layer):
            yield from _placed(child, _join(path, child.name))


def _children(layer: keras.Layer) -> list[keras.Layer]:
    return list({id(child): child for child in layer._layers}.values())


def _attributes(layer: keras.Layer, path: str) -> list[keras.Variable]:
    found: list[Any] = [layer]
    for name in path.split("."):
        found = [each for one in found for each in (one if name == "*" else [getattr(one, name)])]
    return found


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
