"""Other ways to do the ops of a call: other orders of a reshape, widths of a padding; settings of a model's graph.

Keras calls TensorFlow's functions by their public names, under which others are put in their place. Where windows lie
is changed on PyTorch's side, whose ops take any padding.

The code of a functional model runs once, when the model is built, and leaves a graph of operations. So what stands in
that code is changed in the graph: an operation's settings, the constants that it is given, and which operation it is.
"""

import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
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
from parity.diagnose.experiment import operations as ways
from parity.diagnose.experiment.candidates import FUNCTIONS, alternatives
from parity.diagnose.experiment.knobs import AS_GIVEN, Knob, Owner
from parity.diagnose.experiment.operations import BY_SIGN, FIRST, LEFT_OUT, RESHAPE, SECOND, SIGNS, TRANSPOSE, Order
from parity.runtime.experiment import Mask

CAST, WHERE = "cast", "where"
OPTIONAL = {"initial_state": "state", "mask": "mask"}  # arguments of layers, by what they are called
AS_RUN, IN_TIME = "last step first", "first step first"  # how a layer that runs backwards returns its sequence
NAMES = (RESHAPE, TRANSPOSE, CAST, ways.PAD, WHERE)
# As they are when nothing is put in their place.
reshape, transpose, pad, where = tf.reshape, tf.transpose, tf.pad, tf.where
Function = Callable[..., Any]
Do = Callable[[str, int, Function, tuple, dict[str, Any]], Any]


def operations(replay: Callable[[], Any], place: Callable[[], str], is_paused: Callable[[], bool]) -> list[Knob]:
    """Return the ops of `replay`, which calls a module again, that can be done in another way.

    `place` returns the path of the innermost module that is being called, and `is_paused` whether what is running now
    is to be left out.
    """
    variants: list[ways.Operation] = []

    def note(name: str, number: int, function: Function, args: tuple, kwargs: dict[str, Any]) -> Any:
        result = function(*args, **kwargs)
        if not is_paused() and (operation := _operation(name, number, args, kwargs, result)):
            variants.append(operation._replace(source=source.nearest(), path=place()))
        return result

    with _seen(note):
        replay()
    return list(ways.knobs(variants, _doing))


def _seen(do: Do) -> AbstractContextManager[None]:
    """Return a context in which `do` is called in place of each function that can be done in another way."""
    counts = Counter[str]()

    def called(name: str, function: Function, *args: Any, **kwargs: Any) -> Any:
        counts[name] += 1
        return do(name, counts[name], function, args, kwargs)

    return applied(around(tf, name, partial(called, name)) for name in NAMES)


def _doing(changed: ways.Calls) -> Any:
    def do(name: str, number: int, function: Function, args: tuple, kwargs: dict[str, Any]) -> Any:
        variant = changed.get((name, number))
        result = function(*args, **kwargs)
        given = _choice if name == WHERE else _given
        return variant(given(args, kwargs), result) if variant else result

    return _seen(do)


def _given(args: tuple, kwargs: dict[str, Any]) -> Any:
    """Return the tensor that a function is given."""
    return tf.convert_to_tensor(
        args[0] if args else next(kwargs[name] for name in ("tensor", "a", "x") if name in kwargs)
    )


def _choice(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what `tf.where` is given, by name."""
    return dict(zip(("condition", "x", "y"), args, strict=False)) | kwargs


def _operation(name: str, number: int, args: tuple, kwargs: dict[str, Any], result: Any) -> ways.Operation | None:
    """Return a call with the other ways to do it; None if there are none."""
    if not tf.executing_eagerly():
        return None
    if name == CAST:
        return _of_cast(number, _given(args, kwargs).dtype, result.dtype)
    if name == ways.PAD:
        return _of_pad(number, args, kwargs)
    if name == WHERE:
        return _of_mask(number, _choice(args, kwargs), result)
    before, after = tuple(_given(args, kwargs).shape), tuple(result.shape)
    if name == RESHAPE:
        others: dict[str, Any] = {order.text: partial(_reordered, order) for order in ways.orders(before, after)}
        return ways.Operation(name, number, ways.ORDER, RESHAPE, RESHAPE, others) if others else None
    turned: dict[str, Any] = {order.text: partial(_turned, order) for order in ways.orders(after, after)}
    return ways.Operation(
        name, number, ways.ORDER, RESHAPE, TRANSPOSE, {RESHAPE: lambda x, result: reshape(x, result.shape), **turned}
    )


def _of_cast(number: int, before: tf.DType, after: tf.DType) -> ways.Operation | None:
    """Return a cast that rounds, which can be left out; None for one that does not."""
    if not before.is_floating or not (after.is_integer or (after.is_floating and after.size < before.size)):
        return None
    what, kind = (after.name, "precision") if after.is_floating else ("dtype", CAST)
    return ways.Operation(CAST, number, what, kind, f"cast to {after.name}", {ways.LEFT_OUT: lambda x, result: x})


def _of_pad(number: int, args: tuple, kwargs: dict[str, Any]) -> ways.Operation | None:
    """Return a call that pads with zeros, with other widths before and after; None for one that pads otherwise."""
    given = dict(zip(("tensor", "paddings", "mode", "constant_values"), args, strict=False)) | kwargs
    if given.get("mode", "CONSTANT").upper() != "CONSTANT" or given.get("constant_values", 0) != 0:
        return None
    present = tuple((int(before), int(after)) for before, after in np.asarray(given["paddings"]))
    padded = [axis for axis, ends in enumerate(present) if any(ends)]
    margins = tuple(present[axis] for axis in padded)
    widths = ways.widths(margins).items()
    others = {text: partial(_padded, dict(zip(padded, ends, strict=True))) for text, ends in widths}
    before = ways.told(margins) if others else ""
    return ways.Operation(ways.PAD, number, ways.PADDING, ways.ZERO_PADDING, before, others) if others else None


def _padded(ends: Mapping[int, tuple[int, int]], x: Any, result: Any) -> Any:
    return pad(x, [ends.get(axis, (0, 0)) for axis in range(len(x.shape))])


def _of_mask(number: int, given: Mapping[str, Any], result: Any) -> ways.Operation | None:
    """Return what is masked along one of two equal last axes, as keys in attention are; None for any other choice."""
    mask, shape = np.asarray(given["condition"]), tuple(result.shape)
    if given.get("x") is None or len(shape) < 2 or mask.ndim != len(shape) or shape[-1] != shape[-2]:
        return None
    turned = {masks.TURNED: lambda given, _: where(**given | {"condition": mask.swapaxes(-2, -1)})}
    return ways.Operation(WHERE, number, "axis", "mask", "as it is", turned) if masks.lies_along_one(mask) else None


def _turned(order: Order, x: Any, result: Any) -> Any:
    return transpose(result, order.axes)


def _reordered(order: Order, x: Any, result: Any) -> Any:
    """Return a reshape in which axes are in another order before, or two exchanged after it."""
    shape = result.shape
    if order.is_before:
        return reshape(transpose(x, order.axes), shape)
    return transpose(reshape(x, [shape[axis] for axis in order.axes]), order.axes)


Lines = Mapping[int, str]  # "file:line" of the user's code that made an operation, by the operation's id()


def graph_settings(
    layers: Sequence[Any], lines: Lines, read: Collection[str], theirs: Sequence[Mask]
) -> Iterator[Knob]:
    """Yield what can be changed in the graphs of functional models, and the order of what recurrent layers return.

    What one line of code has made several times is changed in all of them, as it is by another line of code. `lines`:
    where the operations were made. `read`: the names that the code which was run refers to. `theirs`: the masks that
    the other side's module is given.
    """
    alike: dict[tuple[str, ...], list[Knob]] = {}
    for layer, argument in itertools.product(layers, OPTIONAL):
        is_layer = not isinstance(layer, keras.Model)  # models hand what they are given on to their layers
        if is_layer and argument in inspect.signature(layer.call).parameters:
            change, what = partial(_replaced, layer, partial(_without, argument)), OPTIONAL[argument]
            yield Knob("missing", type(layer).__name__, "", AS_GIVEN, "operation", change, (LEFT_OUT,), what)
    for layer in (each for each in layers if isinstance(each, keras.layers.RNN)):
        if layer.go_backwards and layer.return_sequences:
            name, change = type(layer).__name__, partial(_replaced, layer, _flipped)
            yield Knob("order", name, "", AS_RUN, "operation", change, (IN_TIME,), name)
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
        yield Knob(SIGNS[name], name, "", SIGNS[name], "operator", partial(_replaced, operation, _signed))
    elif name in FUNCTIONS or _keeps_form(operation):
        others = (other for other in alternatives(name) if hasattr(keras.ops, other))
        words = (*([LEFT_OUT] if _keeps_form(operation) else []), *others)
        yield Knob(name, name, "", name, "function", partial(_replaced, operation, _called), words)


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
    for position, value in enumerate(keras.tree.flatten(given)):
        change = partial(_with_argument, node, position)
        if type(value) in (bool, int, float):
            yield Knob(repr(value), name, "", value, "constant", change)
        elif tf.is_tensor(value) or isinstance(value, np.ndarray):
            mask = Knob("mask", name, "", AS_GIVEN, "argument", change, of="attention")
            yield from masks.of_value(tf.convert_to_tensor(value), mask, theirs, weights.array, like)


def _with_argument(node: Node, position: int, value: Any) -> AbstractContextManager[Any]:
    """Return a context in which a call has another argument at a position among all of them."""
    given = (node.arguments.args, node.arguments.kwargs)
    flat = keras.tree.flatten(given)
    args, kwargs = keras.tree.pack_sequence_as(given, [*flat[:position], value, *flat[position + 1 :]])
    return mock.patch.object(node, "arguments", SymbolicArguments(*args, **kwargs))


def _replaced(operation: Operation, another: Callable[..., Any], value: Any) -> AbstractContextManager[Any]:
    """Return a context in which `another` gets an operation, what it is to be, and the arguments of a call."""
    return mock.patch.object(operation, "call", lambda *args, **kwargs: another(operation, value, args, kwargs))


def _without(argument: str, layer: Any, _: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a layer returns that is not given an optional argument."""
    given = inspect.signature(type(layer).call).bind(layer, *args, **kwargs)
    given.arguments[argument] = None
    return type(layer).call(*given.args, **given.kwargs)


def _flipped(layer: Any, _: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the sequence of a layer that runs backwards from its first step to its last."""
    outputs = type(layer).call(layer, *args, **kwargs)
    sequence, *states = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return (tf.reverse(sequence, [1]), *states) if states else tf.reverse(sequence, [1])


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
