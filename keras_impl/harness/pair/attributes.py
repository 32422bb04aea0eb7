"""The attributes that hold the layers and variables of a user's model: names, where Keras itself only counted.

Keras names a layer dense_1 and a variable variable_1 where nobody names them; `self.gate = Dense(16)` does name it.
"""

import re
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.utils.naming import to_snake_case

# Where Keras and the tracking of TensorFlow list what a layer holds.
LISTS = (
    "_layers", "_operations", "_operations_by_depth", "_functional", "_metrics", "_tracked", "_trainable_variables",
    "_non_trainable_variables",
)  # fmt: skip
COUNTED = re.compile(r"variable(_\d+)?")


def attributes(layer: Any) -> dict[int, str]:
    """By the id of each layer or variable the attribute that holds it, as "blocks/0" where it is in a list or dict."""
    found: dict[int, str] = {}
    for name, value in vars(layer).items():
        if name not in LISTS and not name.startswith("_self_"):
            for place, held in _within(name.lstrip("_"), value):
                found.setdefault(id(held), place)
    return found


def chosen(layer: Any, name: str, held: dict[int, str]) -> str:
    """The name that somebody chose for a layer: its own, or else its attribute's; "" if Keras counted it."""
    if isinstance(layer, keras.Layer) and _is_counted(layer):
        return held.get(id(layer), "")
    return name


def role_of(variable: Any, name: str, held: dict[int, str]) -> str:
    """What a variable is to its layer: its attribute's name where Keras counted its own."""
    return held.get(id(variable), name) if COUNTED.fullmatch(name) else name


def _is_counted(layer: keras.Layer) -> bool:
    return bool(re.fullmatch(rf"{re.escape(to_snake_case(type(layer).__name__))}(_\d+)?", layer.name))


def _within(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The layers and variables that an attribute holds."""
    if isinstance(value, (keras.Layer, tf.Module, keras.Variable, tf.Variable)):
        yield place, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _within(f"{place}/{key}", each)
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _within(f"{place}/{number}", each)
