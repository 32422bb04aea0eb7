"""The layers of a user's model by path, and their variables by name; what each is.

A path is the names of the layers from below the model, joined by slashes, and made unique among siblings. What is
within a recurrent layer has no calls that are seen; the variables of its cell are the layer's own.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_impl.harness import kinds
from parity.pairs import survey

STATISTICS = ("moving_mean", "moving_variance")


class Held(NamedTuple):
    """A variable of a model: `told` says what it is."""

    told: survey.Weight
    variable: Any


def named(model: Any) -> dict[str, Any]:
    """Every layer or module by its first path; the model has ""."""
    found: dict[int, tuple[str, Any]] = {}
    for path, layer in _placed(model, ""):
        found.setdefault(id(layer), (path, layer))
    return dict(found.values())


def modules(model: Any) -> list[survey.Module]:
    """All of them, told."""
    return [
        survey.Module(path=path, kind=kinds.kind(layer), facts=kinds.facts(layer))
        for path, layer in named(model).items()
    ]


def called(model: Any) -> dict[str, keras.Layer]:
    """The layers whose calls can be seen: not the model's own, and none within a recurrent layer."""
    known = named(model)
    recurrent = [f"{path}/" if path else "" for path, layer in known.items() if isinstance(layer, keras.layers.RNN)]
    return {
        path: layer
        for path, layer in known.items()
        if path and isinstance(layer, keras.Layer) and not path.startswith(tuple(recurrent))
    }


def leaves(model: Any) -> set[str]:
    """The paths of those that have none within them, as far as calls are seen."""
    paths = called(model)
    outer = {path[:end] for path in paths for end, sign in enumerate(path) if sign == "/"}
    return set(paths) - outer


def variables(model: Any) -> list[Held]:
    """Every weight once; random states and metrics are none."""
    found: dict[int, Held] = {}
    layers = named(model)
    for path, layer in layers.items():
        names: Counter[str] = Counter()
        for role, variable in _own(layer):
            names[role] += 1
            name = role if names[role] == 1 else f"{role}_{names[role] - 1}"
            found.setdefault(id(variable), Held(_told(layers, path, name, variable), variable))
    return list(found.values())


def tied(model: Any) -> dict[str, str]:
    """Further names of variables that several layers hold, or of layers that stand in several places."""
    first = {id(held.variable): held.told.name for held in variables(model)}
    further = {}
    for path, layer in _placed(model, ""):
        for role, variable in _own(layer):
            name = _join(path, role)
            if (known := first[id(variable)]) != name and not known.startswith(f"{name}_"):
                further[name] = known
    return further


def _told(layers: dict[str, Any], path: str, role: str, variable: Any) -> survey.Weight:
    """A cell's weights belong to the recurrent layer that has it."""
    outer, _, _ = path.rpartition("/")
    owner = layers.get(outer)
    is_cell = path and isinstance(owner, keras.layers.RNN) and owner.cell is layers[path]
    own = getattr(variable, "path", variable.name)
    name = _join(path, role)
    return survey.Weight(
        name=name,
        shape=tuple(variable.shape),
        dtype=tf.as_dtype(variable.dtype).name,
        module=outer if is_cell else path,
        role=role,
        trainable=bool(variable.trainable) and not _is_untracked(layers[path], variable),
        statistic=role in STATISTICS and not _is_frozen(layers[path]),
        also=[own] if own != name else [],
    )


def _is_untracked(layer: Any, variable: Any) -> bool:
    """Whether Keras does not know of a variable, and so never trains it."""
    return isinstance(layer, keras.Layer) and isinstance(variable, tf.Variable)


def _is_frozen(layer: Any) -> bool:
    """Whether a layer that has statistics keeps them: Keras's does where it is not trained."""
    return not getattr(layer, "trainable", True)


def _placed(layer: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, layer
    names: Counter[str] = Counter()
    for name, child in _children(layer):
        names[name] += 1
        unique = name if names[name] == 1 else f"{name}_{names[name] - 1}"
        yield from _placed(child, _join(path, unique))


def _children(layer: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(layer, keras.Layer):
        for child in {id(child): child for child in layer._layers}.values():
            if not isinstance(child, keras.layers.InputLayer):
                yield child.name, child
    elif isinstance(layer, tf.Module):
        inner = layer._flatten(recursive=False, predicate=_is_module, with_path=True)
        yield from {id(child): ("/".join(map(str, place)), child) for place, child in inner}.values()


def _is_module(value: Any) -> bool:
    return isinstance(value, (tf.Module, keras.Layer))


def _own(layer: Any) -> Iterator[tuple[str, Any]]:
    """The variables that a layer itself holds, by their names in it; plain ones of TensorFlow's too."""
    if isinstance(layer, keras.Layer):
        tracked = (*layer._trainable_variables, *layer._non_trainable_variables)
        yield from ((variable.name, variable) for variable in tracked)
        known = {id(getattr(variable, "value", variable)) for variable in tracked}
        for name, value in vars(layer).items():
            if isinstance(value, tf.Variable) and id(value) not in known:
                yield name, value
    elif isinstance(layer, tf.Module):
        for place, variable in layer._flatten(recursive=False, predicate=_is_variable, with_path=True):
            yield "/".join(map(str, place)), variable


def _is_variable(value: Any) -> bool:
    return isinstance(value, (tf.Variable, keras.Variable))


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
