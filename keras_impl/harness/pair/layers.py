"""The layers of a user's model by path, and their variables by name; what each is.

A path is the names of the layers from below the model, joined by slashes, and made unique among siblings. Where Keras
made a name by counting (dense_1), the attribute that holds the layer or variable is told beside it. What is within a
recurrent layer has no calls that are seen; the variables of its cell are the layer's own.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from msgspec.structs import replace

from keras_impl.harness import kinds
from keras_impl.harness.pair.attributes import attributes, chosen, role_of
from parity.trace import survey

STATISTICS = ("moving_mean", "moving_variance")


class _Place(NamedTuple):
    """A layer at a path; `label`, `chosen`: as a survey tells them."""

    path: str
    label: str
    chosen: str
    layer: Any


class Held(NamedTuple):
    """A variable of a model: `told` says what it is."""

    told: survey.Weight
    variable: Any


def named(model: Any) -> dict[str, Any]:
    """Every layer or module by its first path; the model has ""."""
    return {place.path: place.layer for place in _first(model)}


def modules(model: Any) -> list[survey.Module]:
    """All of them, told."""
    return [
        survey.Module(
            path=place.path,
            kind=kinds.kind(place.layer),
            facts=kinds.facts(place.layer),
            label=place.label,
            chosen=place.chosen,
        )
        for place in _first(model)
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
        held = attributes(layer)
        for role, variable in _own(layer):
            names[role] += 1
            name = role if names[role] == 1 else f"{role}_{names[role] - 1}"
            told = _told(layers, path, name, variable)
            found.setdefault(id(variable), Held(replace(told, role=role_of(variable, name, held)), variable))
    return list(found.values())


def tied(model: Any) -> dict[str, str]:
    """Further names of variables that several layers hold, or of layers that stand in several places."""
    first = {id(held.variable): held.told.name for held in variables(model)}
    further = {}
    for place in _placed(model):
        for role, variable in _own(place.layer):
            name = _join(place.path, role)
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
        fixed=role not in STATISTICS and _is_made_untrained(layers[path], variable),
        also=[own] if own != name else [],
    )


def _is_untracked(layer: Any, variable: Any) -> bool:
    """Whether Keras does not know of a variable, and so never trains it."""
    return isinstance(layer, keras.Layer) and isinstance(variable, tf.Variable)


def _is_made_untrained(layer: Any, variable: Any) -> bool:
    """Whether a variable was untrained before its layer was frozen: Keras lists it where it was when it was made."""
    if not isinstance(layer, keras.Layer) or _is_untracked(layer, variable):
        return not variable.trainable
    return any(variable is one for one in layer._non_trainable_variables)


def _is_frozen(layer: Any) -> bool:
    """Whether a layer that has statistics keeps them: Keras's does where it is not trained."""
    return not getattr(layer, "trainable", True)


def _first(model: Any) -> list[_Place]:
    """Every layer or module once, at its first path."""
    found: dict[int, _Place] = {}
    for place in _placed(model):
        found.setdefault(id(place.layer), place)
    return list(found.values())


def _placed(layer: Any, path: str = "", label: str = "", own: str = "") -> Iterator[_Place]:
    yield _Place(path, label, own, layer)
    counts: Counter[str] = Counter()
    held = attributes(layer)
    for name, child in _children(layer):
        counts[name] += 1
        unique = name if counts[name] == 1 else f"{name}_{counts[name] - 1}"
        name = chosen(child, unique, held)
        yield from _placed(child, _join(path, unique), _join(label, name or unique), _join(own, name))


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
    return f"{path}/{name}" if path and name else path or name
