"""The layers of a user's model and its variables, described for the survey.

Where Keras numbered a name (dense_1), the attribute that holds the layer or variable is given as well. Calls within a
recurrent layer cannot be observed, and the variables of its cell count as the layer's own.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from msgspec.structs import replace

from keras_impl.record import kinds, tree
from keras_impl.record.pair.attributes import attributes, role_of
from keras_impl.record.pair.sources import Sources
from parity.trace import survey

STATISTICS = ("moving_mean", "moving_variance")


class Held(NamedTuple):
    """A variable of a model, and its description."""

    description: survey.Weight
    variable: Any


def modules(model: Any, sources: Sources) -> list[survey.Module]:
    """Return the descriptions of all layers, with the lines that made them."""
    return [
        survey.Module(
            path=node.path,
            kind=kinds.kind(node.layer),
            facts=kinds.facts(node.layer),
            label=node.label,
            chosen=node.chosen,
            made=sources.of(node.layer),
        )
        for node in tree.nodes(model)
    ]


def variables(model: Any, sources: Sources | None = None) -> list[Held]:
    """Return every weight once; random states and metrics are not weights.

    `sources`, where they were recorded, say which values the user's code has chosen.
    """
    by_id: dict[int, Held] = {}
    layers, trained = tree.named(model), set(map(id, model.trainable_variables))
    for path, layer in layers.items():
        names: Counter[str] = Counter()
        held = attributes(layer)
        for role, variable in variables_of(layer):
            names[role] += 1
            name = role if names[role] == 1 else f"{role}_{names[role] - 1}"
            description = _described(layers, path, name, variable, id(variable) in trained)
            chosen = bool(sources) and not variable.trainable and sources.has_chosen(variable)
            described = replace(description, role=role_of(variable, name, held), chosen=chosen)
            by_id.setdefault(id(variable), Held(described, variable))
    return list(by_id.values())


def tied(model: Any) -> dict[str, str]:
    """Map each further name of a shared variable (or of a variable of a shared layer) to its first name."""
    first = {id(held.variable): held.description.name for held in variables(model)}
    further = {}
    for node in tree.nodes(model, repeated=True):
        for role, variable in variables_of(node.layer):
            name = _name(node.path, role)
            if (first_name := first[id(variable)]) != name and not first_name.startswith(f"{name}_"):
                further[name] = first_name
    return further


def _described(layers: dict[str, Any], path: str, role: str, variable: Any, trained: bool) -> survey.Weight:
    """Describe a variable; the weights of a cell belong to its recurrent layer."""
    outer, _, _ = path.rpartition("/")
    owner = layers.get(outer)
    is_cell = path and isinstance(owner, keras.layers.RNN) and owner.cell is layers[path]
    own = getattr(variable, "path", variable.name)
    name = _name(path, role)
    return survey.Weight(
        name=name,
        shape=tuple(variable.shape),
        dtype=tf.as_dtype(variable.dtype).name,
        module=outer if is_cell else path,
        role=role,
        trainable=trained,
        statistic=role in STATISTICS and not _is_frozen(layers[path]),
        fixed=role not in STATISTICS and _is_made_untrained(layers[path], variable),
        also=[own] if own != name else [],
    )


def _is_untracked(layer: Any, variable: Any) -> bool:
    """Return whether Keras does not know of the variable, and so never trains it."""
    return isinstance(layer, keras.Layer) and isinstance(variable, tf.Variable)


def _is_made_untrained(layer: Any, variable: Any) -> bool:
    """Return whether a variable was untrained before its layer was frozen: Keras lists it where it was when made."""
    if not isinstance(layer, keras.Layer) or _is_untracked(layer, variable):
        return not variable.trainable
    return any(variable is one for one in layer._non_trainable_variables)


def _is_frozen(layer: Any) -> bool:
    """Return whether a layer keeps its statistics unchanged: in Keras, when it is not trainable."""
    return not getattr(layer, "trainable", True)


def variables_of(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, variable) for the variables that a layer itself holds, including plain tf.Variables."""
    if isinstance(layer, keras.Layer):
        tracked = (*layer._trainable_variables, *layer._non_trainable_variables)
        yield from ((str(variable.name), variable) for variable in tracked)
        tracked_ids = {id(getattr(variable, "value", variable)) for variable in tracked}
        for name, value in vars(layer).items():
            if isinstance(value, tf.Variable) and id(value) not in tracked_ids:
                yield name, value
    elif isinstance(layer, tf.Module):
        for attribute_path, variable in layer._flatten(recursive=False, predicate=_is_variable, with_path=True):
            yield "/".join(map(str, attribute_path)), variable


def _is_variable(value: Any) -> bool:
    return isinstance(value, (tf.Variable, keras.Variable))


def _name(path: str, role: str) -> str:
    return f"{path}/{role}" if path else role
