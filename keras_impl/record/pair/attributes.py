"""Names for the layers and variables of a user's model, from the attributes that hold them.

Keras numbers layers and variables without names of their own (dense_1, variable_1). But `self.gate = Dense(16)` does
name the layer.
"""

import re
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.utils.naming import to_snake_case

# Attributes in which Keras and TensorFlow's tracking list what a layer holds.
LISTS = (
    "_layers", "_operations", "_operations_by_depth", "_functional", "_metrics", "_tracked", "_trainable_variables",
    "_non_trainable_variables",
)  # fmt: skip
COUNTED = re.compile(r"variable(_\d+)?")


def attributes(layer: Any) -> dict[int, str]:
    """Return the attribute that holds each layer or variable, by its id().

    In a list or dict it is "blocks/0".
    """
    paths: dict[int, str] = {}
    for name, value in vars(layer).items():
        if name not in LISTS and not name.startswith("_self_"):
            for path, held in _within(name.lstrip("_"), value):
                paths.setdefault(id(held), path)
    return paths


def chosen(layer: Any, name: str, held: dict[int, str]) -> str:
    """Return the name that the user chose for a layer: its own, else its attribute's; "" if Keras numbered it."""
    if isinstance(layer, keras.Layer) and _is_counted(layer):
        return held.get(id(layer), "")
    return name


def role_of(variable: Any, name: str, held: dict[int, str]) -> str:
    """Return a variable's role in its layer: its own name, or its attribute's if Keras numbered it."""
    return held.get(id(variable), name) if COUNTED.fullmatch(name) else name


def _is_counted(layer: keras.Layer) -> bool:
    return bool(re.fullmatch(rf"{re.escape(to_snake_case(type(layer).__name__))}(_\d+)?", layer.name))


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
