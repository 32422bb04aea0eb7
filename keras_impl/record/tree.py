"""The tree of a model's layers, by paths: the one walk that all recording asks; and the kind of each layer.

A path consists of the names of the layers below the model, joined by slashes; equal names of siblings get a number.
Keras numbers layers and variables without names of their own (dense_1, variable_1); but `self.gate = Dense(16)` does
name the layer. Kinds have names that both sides share.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.utils.naming import to_snake_case

from keras_impl.models.transformer import MultiheadAttention
from keras_impl.record.specimen import GELU
from keras_impl.strategies.tensor_parallel import ColumnParallel, RowParallel, SplitDropout
from parity.core.plain import setting, settings

# Each of these is a single module in PyTorch: the layers inside are not walked, except as a tree of their own.
WHOLE = (MultiheadAttention, ColumnParallel, RowParallel, SplitDropout)


class _Node(NamedTuple):
    """A layer and its path; `label` and `chosen` as in the survey."""

    path: str
    label: str
    chosen: str
    layer: Any


def named(model: Any) -> dict[str, Any]:
    """Return every layer or module by its first path; the model's is ""."""
    return {node.path: node.layer for node in nodes(model)}


def called(model: Any) -> dict[str, Any]:
    """Return the layers whose calls can be compared, by path, the model among them if it is a layer.

    The layers within a recurrent layer are left out, whose calls cannot be observed. Of a layer that is split by its
    columns, the shards are called, each under the name "@shard" and its number.
    """
    layers = {path: layer for path, layer in named(model).items() if isinstance(layer, keras.Layer)}
    recurrent = tuple(
        f"{path}/" if path else "" for path, layer in layers.items() if isinstance(layer, keras.layers.RNN)
    )
    result: dict[str, Any] = {}
    for path, layer in layers.items():
        if isinstance(layer, ColumnParallel):
            result |= {f"{path}@shard{number}": shard for number, shard in enumerate(layer.shards)}
        elif path == "" or not path.startswith(recurrent):
            result[path] = layer
    return result


def inner(model: Any) -> dict[str, Any]:
    """Return the layers within the model whose calls can be compared, by path."""
    return {path: layer for path, layer in called(model).items() if path}


def leaves(model: Any) -> set[str]:
    """Return the paths of the layers that can be compared and contain no other such layer."""
    paths = called(model)
    outer = {path[:end] for path in paths for end, sign in enumerate(path) if sign == "/"}
    return set(paths) - outer


def nodes(model: Any, repeated: bool = False) -> list[_Node]:
    """Return every layer or module once, at its first path; or, if `repeated`, at each of its paths."""
    every = list(_nodes(model))
    by_id: dict[int, _Node] = {}
    for node in every:
        by_id.setdefault(id(node.layer), node)
    return every if repeated else list(by_id.values())


def _nodes(layer: Any, path: str = "", label: str = "", own: str = "") -> Iterator[_Node]:
    """Yield a layer and all layers below it, with paths that are unique among siblings."""
    yield _Node(path, label, own, layer)
    counts: Counter[str] = Counter()
    held = attributes(layer)
    for name, child in () if path and isinstance(layer, WHOLE) else _children(layer):
        counts[name] += 1
        unique = name if counts[name] == 1 else f"{name}_{counts[name] - 1}"
        # The name that the user chose: its own, or else its attribute's; none if Keras numbered it.
        counted = rf"{re.escape(to_snake_case(type(child).__name__))}(_\d+)?"
        is_counted = isinstance(child, keras.Layer) and re.fullmatch(counted, child.name)
        name = held.get(id(child), "") if is_counted else unique
        yield from _nodes(child, joined(path, unique), joined(label, name or unique), joined(own, name))


def _children(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, layer) for the layers directly below; a tf.Module's are named by their attributes."""
    if isinstance(layer, keras.Layer):
        for child in {id(child): child for child in layer._layers}.values():
            if not isinstance(child, keras.layers.InputLayer):
                yield str(child.name), child  # a name of NumPy's is no str to a JSON encoder
    elif isinstance(layer, tf.Module):
        inner = held_by(layer, (tf.Module, keras.Layer))
        yield from {id(child): (name, child) for name, child in inner}.values()


def joined(path: str, name: str) -> str:
    """Return the path of what has a name within a layer; that of the layer itself without a name."""
    return f"{path}/{name}" if path and name else path or name


def held_by(module: tf.Module, kinds: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """Yield what a module itself holds of some kinds, by the attributes that hold it."""
    held = module._flatten(recursive=False, predicate=lambda value: isinstance(value, kinds), with_path=True)
    yield from (("/".join(map(str, attributes)), value) for attributes, value in held)


# Attributes in which Keras and TensorFlow's tracking list what a layer holds.
LISTS = (
    "_layers", "_operations", "_operations_by_depth", "_functional", "_metrics", "_tracked", "_trainable_variables",
    "_non_trainable_variables",
)  # fmt: skip
COUNTED = re.compile(r"variable(_\d+)?")


def attributes(layer: Any) -> dict[int, str]:
    """Return the attribute that holds each layer or variable, by its id(); in a list or dict it is "blocks/0"."""
    paths: dict[int, str] = {}
    for name, value in vars(layer).items():
        if name not in LISTS and not name.startswith("_self_"):
            for path, held in _within(name.lstrip("_"), value):
                paths.setdefault(id(held), path)
    return paths


def role_of(variable: Any, name: str, held: dict[int, str]) -> str:
    """Return a variable's role in its layer: its own name, or its attribute's if Keras numbered it."""
    return held.get(id(variable), name) if COUNTED.fullmatch(name) else name


def _within(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the layers and variables that an attribute holds, with their paths."""
    if isinstance(value, (keras.Layer, tf.Module, keras.Variable, tf.Variable)):
        yield path, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _within(f"{path}/{key}", member)
    elif isinstance(value, (list, tuple)):
        for number, member in enumerate(value):
            yield from _within(f"{path}/{number}", member)


AXES = (1, 2, 3)  # that a convolution or a pool may have
# The classes of each kind; the first kind that has a module's class counts.
KINDS: dict[str, type | tuple[type, ...]] = {
    "linear": (keras.layers.Dense, ColumnParallel, RowParallel),
    "einsum_dense": keras.layers.EinsumDense,
    **{f"conv{axes}d": getattr(keras.layers, f"Conv{axes}D") for axes in AXES},
    **{f"conv_transpose{axes}d": getattr(keras.layers, f"Conv{axes}DTranspose") for axes in AXES},
    "depthwise_conv1d": keras.layers.DepthwiseConv1D,
    "depthwise_conv2d": keras.layers.DepthwiseConv2D,
    "separable_conv": (keras.layers.SeparableConv1D, keras.layers.SeparableConv2D),
    "batch_norm": keras.layers.BatchNormalization,
    "layer_norm": keras.layers.LayerNormalization,
    "group_norm": keras.layers.GroupNormalization,
    "rms_norm": getattr(keras.layers, "RMSNormalization", ()),  # since Keras 3.9
    "reversible_embedding": getattr(keras.layers, "ReversibleEmbedding", ()),  # since Keras 3.12
    "embedding": keras.layers.Embedding,
    "lstm": (keras.layers.LSTM, keras.layers.LSTMCell),
    "gru": (keras.layers.GRU, keras.layers.GRUCell),
    "rnn": (keras.layers.SimpleRNN, keras.layers.SimpleRNNCell),
    "bidirectional": keras.layers.Bidirectional,
    "attention": (MultiheadAttention, keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention),
    "relu": keras.layers.ReLU,
    "prelu": keras.layers.PReLU,
    "gelu": GELU,
    "softmax": keras.layers.Softmax,
    **{f"max_pool{axes}d": getattr(keras.layers, f"MaxPooling{axes}D") for axes in AXES},
    **{f"average_pool{axes}d": getattr(keras.layers, f"AveragePooling{axes}D") for axes in AXES},
    "flatten": keras.layers.Flatten,
    "dropout": keras.layers.Dropout,
}
# For layers without a kind by class: by a part of the class's name, and by the function that the layer applies.
NAMES = {"RMSNorm": "rms_norm", "LlamaLayerNorm": "rms_norm", "ReversibleEmbedding": "reversible_embedding"}
FUNCTIONS = {
    keras.activations.relu: "relu",
    keras.activations.gelu: "gelu",
    keras.activations.silu: "silu",
    keras.activations.softmax: "softmax",
}
# The attributes that hold each fact, in Keras or in KerasHub.
FACTS = {
    "groups": ("groups",),
    "strides": ("strides",),
    "padding": ("padding",),
    "dilation": ("dilation_rate",),
    "depth_multiplier": ("depth_multiplier",),
    "equation": ("equation",),
    "heads": ("num_heads", "num_query_heads"),
    "kv_heads": ("num_key_value_heads",),
    "reset_after": ("reset_after",),
    "epsilon": ("epsilon",),
    "rate": ("rate",),
    "data_format": ("data_format",),
    "axis": ("axis",),
}


def kind(module: Any) -> str:
    """Return a kind from the tables, or else the name of the layer's class."""
    if kind_name := next((name for name, classes in KINDS.items() if isinstance(module, classes)), ""):
        return kind_name
    if isinstance(module, keras.layers.Activation) and module.activation in FUNCTIONS:
        return FUNCTIONS[module.activation]
    if isinstance(module, keras.layers.RNN) and (cell_kind := kind(module.cell)) in ("lstm", "gru", "rnn"):
        return cell_kind
    name = type(module).__name__
    return next((candidate for part, candidate in NAMES.items() if part in name), name)


def facts(module: Any) -> dict[str, Any]:
    """Return what the mapping may need to know about a layer besides its kind."""
    if type(module) is keras.layers.RNN:
        return facts(module.cell)
    result, activation = settings(module, FACTS), getattr(module, "activation", None)
    if kind(module) == "gelu":
        result["form"] = "exact"
    elif callable(activation) and activation is not keras.activations.linear:
        result["activation"] = setting(activation, ["__name__"]) or type(activation).__name__
    return result


def computed(module: Any) -> str:
    """Return the kind whose formula explains a layer's output: with a fused activation none, but its class's name."""
    name = kind(module)
    fused = facts(module).get("activation")
    return type(module).__name__ if fused and name not in (*FUNCTIONS.values(), "lstm", "gru", "rnn") else name


def arguments(module: keras.Layer, given: tuple[Any, ...], leaf: bool) -> list[tf.Tensor]:
    """Return the tensors among the positional arguments of a call.

    For attention: query, key and value. For a layer with sublayers: the first tensor only, since the frameworks pass
    different further arguments.
    """
    tensors = [argument for argument in given if tf.is_tensor(argument)]
    if kind(module) == "attention":
        return [tensors[i] for i in (0, 1, 1)]
    return tensors if leaf else tensors[:1]
