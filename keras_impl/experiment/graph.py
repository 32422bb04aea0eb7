"""The settings of the operations in a functional model's graph.

The code of a functional model runs once, when the model is built, and leaves a graph of operations. So what stands in
that code is changed in the graph: an operation's settings, the constants that it is given, and which operation it is.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src.models.functional import Functional
from keras.src.ops.node import Node
from keras.src.ops.operation import Operation
from keras.src.ops.symbolic_arguments import SymbolicArguments
from keras.src.utils.naming import to_snake_case

from keras_impl.experiment.call import like
from keras_impl.instruments import source
from keras_impl.record import weights
from parity.core.patches import applied, around
from parity.diagnose.experiment import knobs, masks
from parity.diagnose.experiment.candidates import FUNCTIONS
from parity.diagnose.experiment.knobs import AS_GIVEN, Knob, Owner
from parity.diagnose.experiment.operations import BY_SIGN, FIRST, LEFT_OUT, SECOND, SIGNS
from parity.runtime.experiment import Mask

Lines = Mapping[int, str]  # "file:line" of the user's code that made an operation, by the operation's id()


def settings(layers: Iterable[Any], lines: Lines, read: Collection[str], theirs: Sequence[Mask]) -> Iterator[Knob]:
    """Yield what can be changed in the graphs of functional models.

    What one line of code has made several times is changed in all of them, as it is by another line of code.

    Args:
        layers: the layers among which the models are.
        lines: where the operations were made.
        read: the names that the code which was run refers to.
        theirs: the masks that the other side's module is given.
    """
    alike: dict[tuple[str, ...], list[Knob]] = {}
    for operation in (each for each in _operations(layers) if not isinstance(each, keras.Layer)):
        line = lines.get(id(operation), "")
        for knob in _settings(operation, read, theirs):
            same = (line or str(id(operation)), knob.owner, knob.name, knob.kind, repr(knob.value), *knob.words)
            alike.setdefault(same, []).append(knob._replace(source=line))
    for several in alike.values():
        yield several[0] if len(several) == 1 else several[0]._replace(changed=knobs.together(several))


def _settings(operation: Operation, read: Collection[str], theirs: Sequence[Mask]) -> Iterator[Knob]:
    """Yield what can be changed in an operation."""
    name = to_snake_case(type(operation).__name__)  # of the function in keras.ops that makes such an operation
    for knob in knobs.attributes(Owner("", name, operation), read, Operation):
        yield knob._replace(owner=name)
    for node in operation._inbound_nodes:
        yield from _arguments(node, name, theirs)
    if name in SIGNS:
        yield Knob(SIGNS[name], name, "", SIGNS[name], "operator", _replaced(operation, _signed))
    elif name in FUNCTIONS or _keeps_form(operation):
        words = (LEFT_OUT,) if _keeps_form(operation) else ()
        yield Knob(name, name, "", name, "function", _replaced(operation, _called), words)


def located(layers: Iterable[Any], lines: Lines) -> AbstractContextManager[None]:
    """Return a context in which the line that made a layer or operation is, while it runs, taken for the user's."""
    own = set(map(id, _operations(layers)))

    def called(call: Callable[..., Any], operation: Operation, /, *args: Any, **kwargs: Any) -> Any:
        with source.standing_for(lines.get(id(operation), "")) if id(operation) in own else nullcontext():
            return call(operation, *args, **kwargs)

    return applied(around(owner, "__call__", called) for owner in (Operation, keras.Layer))


def _operations(layers: Iterable[Any]) -> Iterable[Operation]:
    """Return the operations in the graphs of the functional models among some layers, layers among them."""
    models = (layer for layer in layers if isinstance(layer, Functional))
    return dict.fromkeys(operation for model in models for operation in model.operations)


def _keeps_form(operation: Operation) -> bool:
    """Return whether an operation makes of one tensor another of its shape and type, so that it can be left out."""
    (node, *_) = operation._inbound_nodes
    given, made = node.arguments.keras_tensors, node.output_tensors
    return len(given) == len(made) == 1 and (given[0].shape, given[0].dtype) == (made[0].shape, made[0].dtype)


def _arguments(node: Node, name: str, theirs: Sequence[Mask]) -> Iterator[Knob]:
    """Yield the constants and the masks among the arguments of a call."""
    given = (node.arguments.args, node.arguments.kwargs)
    for place, value in enumerate(keras.tree.flatten(given)):
        change = _with_argument(node, place)
        if type(value) in (bool, int, float):
            yield Knob(repr(value), name, "", value, "constant", change)
        elif tf.is_tensor(value) or isinstance(value, np.ndarray):
            mask = Knob("mask", name, "", AS_GIVEN, "argument", change, of="attention")
            yield from masks.of_value(tf.convert_to_tensor(value), mask, theirs, weights.array, like)


def _with_argument(node: Node, place: int) -> knobs.Changed:
    """Return the change of one of the arguments of a call, by its place among all of them."""

    def changed(value: Any) -> AbstractContextManager[Any]:
        given = (node.arguments.args, node.arguments.kwargs)
        flat = keras.tree.flatten(given)
        args, kwargs = keras.tree.pack_sequence_as(given, [*flat[:place], value, *flat[place + 1 :]])
        return mock.patch.object(node, "arguments", SymbolicArguments(*args, **kwargs))

    return changed


def _replaced(operation: Operation, another: Callable[..., Any]) -> knobs.Changed:
    """Return the change of what an operation does: `another` gets it, what it is to be, and the arguments of a call."""

    def changed(value: Any) -> AbstractContextManager[Any]:
        return mock.patch.object(operation, "call", lambda *args, **kwargs: another(operation, value, args, kwargs))

    return changed


def _signed(operation: Operation, sign: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what another operator makes of two tensors, or one of the two."""
    both = (*args, *kwargs.values())
    if sign in (FIRST, SECOND):
        return both[sign == SECOND]
    return getattr(keras.ops, BY_SIGN[sign])(*both)


def _called(operation: Operation, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what another function of keras.ops makes of the same arguments, with those settings that it has too."""
    if name == LEFT_OUT:
        return (*args, *kwargs.values())[0]
    function = getattr(keras.ops, name)
    known = inspect.signature(function).parameters.keys() - kwargs.keys() - {"name"}
    return function(*args, **kwargs, **{key: value for key, value in vars(operation).items() if key in known})
