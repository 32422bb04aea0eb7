"""Names of a model's layers and variables, from the attributes that hold them, as PyTorch names modules.

Examples: "encoder.dense1"; "blocks.0" in a list. Layers of a Sequential or functional model keep the names that Keras
gave them. Layers that hang in plain objects and closures, which Keras does not know of, are found as well:
"helper.layers[0]".
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_impl.instruments import source
from parity.trace.keys import MODEL

# Attributes in which Keras itself keeps what also hangs on other attributes.
ITS_OWN = ("_layers", "_functional", "_operations", "_metrics", "_self_", "_nodes", "_loss", "_compile", "_tracker")

Parts = tuple[str | int, ...]


class Variable(NamedTuple):
    """A variable of the layer at path `module`; `value` is TensorFlow's own variable."""

    name: str
    module: str
    variable: Any
    value: tf.Variable
    parameter: bool


def named(model: Any) -> Iterator[tuple[str, keras.Layer]]:
    """Yield every layer by its first path; the model itself is `MODEL`."""
    registered_ids = registered(model)
    for parts, layer in _layers(model, (), set()):
        if not isinstance(layer, keras.layers.InputLayer):
            # Hidden layers have indices in brackets, which no name of Keras's has.
            is_hidden = id(layer) not in registered_ids
            texts = [f"[{part}]" if is_hidden and isinstance(part, int) else f".{part}" for part in parts]
            yield "".join(texts).removeprefix(".") or MODEL, layer


def registered(model: Any) -> set[int]:
    """Return the ids of the layers that Keras knows of; of an object that is no layer, those of all layers in it."""
    if isinstance(model, keras.Layer):
        return {id(layer) for layer in model._flatten_layers()}
    return {id(layer) for _, layer in _layers(model, (), set())}


def variables(model: Any) -> Iterator[Variable]:
    """Yield the variables of every layer, except dropout's seeds and variables that are not made yet.

    A variable that several layers hold, as an outer one may in a list, has the first name that is not the model's own.
    """
    found: dict[int, Variable] = {}
    for path, layer in named(model):
        for entry in variables_of(path, layer):
            if id(entry.variable) not in found or found[id(entry.variable)].module == MODEL:
                found[id(entry.variable)] = entry
    yield from found.values()


def variables_of(path: str, layer: keras.Layer) -> Iterator[Variable]:
    """Yield the variables of one layer without those of its sublayers."""
    attributes = dict(_attributes(layer))
    plain = [value for value in vars(layer).values() if isinstance(value, tf.Variable)]  # which Keras does not see
    for variable in (*layer._trainable_variables, *layer._non_trainable_variables, *plain):
        value = variable if isinstance(variable, tf.Variable) else variable._value
        if value is not None:
            own_name = attributes.get(id(variable), variable.name.partition(":")[0])
            name = own_name if path == MODEL else f"{path}.{own_name}"
            # Made to be trained, even if its layer is frozen now.
            parameter = variable.trainable or any(variable is trained for trained in layer._trainable_variables)
            yield Variable(name, path, variable, value, parameter)


def _attributes(layer: keras.Layer) -> Iterator[tuple[int, str]]:
    """Yield the id and the name of each value of an attribute, and of each item of a list or dict: "scales.0"."""
    for key, value in vars(layer).items():
        if not key.startswith("_"):
            items = _items(value) if isinstance(value, (Mapping, Sequence)) else ()
            yield from ((id(item), f"{key}.{place}") for place, item in items)
            yield id(value), key


def _layers(holder: Any, parts: Parts, seen: set[int]) -> Iterator[tuple[Parts, keras.Layer]]:
    """Yield every layer within an object once, with the keys and attributes that lead to it."""
    if id(holder) in seen:
        return
    seen.add(id(holder))
    if isinstance(holder, keras.Layer):
        yield parts, holder
    for key, value in _items(holder):
        yield from _layers(value, (*parts, key), seen)


def _items(holder: Any) -> Iterator[tuple[str | int, Any]]:
    """Yield what hangs on layers, containers and the user's own objects, with the key or attribute."""
    if isinstance(holder, keras.Sequential) or hasattr(holder, "_operations"):
        yield from ((layer.name, layer) for layer in holder.layers)
    if isinstance(holder, Mapping):
        yield from ((str(key), value) for key, value in holder.items())
    elif isinstance(holder, (Sequence, Set)) and not isinstance(holder, (str, bytes)):
        yield from enumerate(holder)
    elif isinstance(holder, partial):
        yield from enumerate((holder.func, *holder.args, *holder.keywords.values()))
    elif isinstance(holder, FunctionType):
        yield from _closure(holder)
    elif isinstance(holder, keras.Layer) or _is_users(type(holder)):
        attributes = dict(getattr(holder, "__dict__", {}))
        yield from ((key, value) for key, value in attributes.items() if not key.startswith(ITS_OWN))


def _closure(function: FunctionType) -> Iterator[tuple[str | int, Any]]:
    if source.kind(function.__code__.co_filename) == source.USER:
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # not set yet
                yield key, cell.cell_contents


def _is_users(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return bool(file) and source.kind(file) == source.USER
