"""Other ways to do the ops of a call: other orders of a reshape, other widths of what is padded.

Keras calls TensorFlow's functions by their public names, under which others are put in their place. Where windows lie
is changed on PyTorch's side, whose ops take any padding.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from keras_impl.instruments import source
from parity.core.patches import applied, around
from parity.diagnose.experiment import operations as ways
from parity.diagnose.experiment.knobs import Knob
from parity.diagnose.experiment.operations import ORDER, RESHAPE, TRANSPOSE, Operation, Order

CAST = "cast"
NAMES = (RESHAPE, TRANSPOSE, CAST, ways.PAD)
reshape, transpose, pad = tf.reshape, tf.transpose, tf.pad  # as they are when nothing is put in their place

Function = Callable[..., Any]
Do = Callable[[str, int, Function, tuple, dict[str, Any]], Any]


def operations(replay: Callable[[], Any], place: Callable[[], str], is_paused: Callable[[], bool]) -> list[Knob]:
    """Return the ops of `replay`, which calls a module again, that can be done in another way.

    `place` returns the path of the innermost module that is being called, and `is_paused` whether what is running now
    is to be left out.
    """
    found: list[Operation] = []

    def note(name: str, number: int, function: Function, args: tuple, kwargs: dict[str, Any]) -> Any:
        result = function(*args, **kwargs)
        if not is_paused() and (operation := _operation(name, number, args, kwargs, result)):
            found.append(operation._replace(source=source.nearest(), path=place()))
        return result

    with _seen(note):
        replay()
    return list(ways.knobs(found, _doing))


def _seen(do: Do) -> AbstractContextManager[None]:
    """Return a context in which `do` is called in place of each function that can be done in another way."""
    counts = Counter[str]()

    def called(name: str, function: Function, *args: Any, **kwargs: Any) -> Any:
        counts[name] += 1
        return do(name, counts[name], function, args, kwargs)

    return applied(around(tf, name, partial(called, name)) for name in NAMES)


def _doing(changed: ways.Calls) -> Any:
    def do(name: str, number: int, function: Function, args: tuple, kwargs: dict[str, Any]) -> Any:
        way = changed.get((name, number))
        result = function(*args, **kwargs)
        return way(_given(args, kwargs), result) if way else result

    return _seen(do)


def _given(args: tuple, kwargs: dict[str, Any]) -> Any:
    """Return the tensor that a function is given."""
    return tf.convert_to_tensor(
        args[0] if args else next(kwargs[name] for name in ("tensor", "a", "x") if name in kwargs)
    )


def _operation(name: str, number: int, args: tuple, kwargs: dict[str, Any], result: Any) -> Operation | None:
    """Return a call with the other ways to do it; None if there are none."""
    if not tf.executing_eagerly():
        return None
    if name == CAST:
        return _of_cast(number, _given(args, kwargs).dtype, result.dtype)
    if name == ways.PAD:
        return _of_pad(number, args, kwargs)
    before, after = tuple(_given(args, kwargs).shape), tuple(result.shape)
    if name == RESHAPE:
        others: dict[str, Any] = {order.text: partial(_reordered, order) for order in ways.orders(before, after)}
        return Operation(name, number, ORDER, RESHAPE, RESHAPE, others) if others else None
    turned: dict[str, Any] = {order.text: partial(_turned, order) for order in ways.orders(after, after)}
    return Operation(
        name, number, ORDER, RESHAPE, TRANSPOSE, {RESHAPE: lambda x, result: reshape(x, result.shape), **turned}
    )


def _of_cast(number: int, before: tf.DType, after: tf.DType) -> Operation | None:
    """Return a cast that rounds, which can be left out; None for one that does not."""
    if not before.is_floating or not (after.is_integer or (after.is_floating and after.size < before.size)):
        return None
    what, kind = (after.name, "precision") if after.is_floating else ("dtype", CAST)
    return Operation(CAST, number, what, kind, f"cast to {after.name}", {ways.LEFT_OUT: lambda x, result: x})


def _of_pad(number: int, args: tuple, kwargs: dict[str, Any]) -> Operation | None:
    """Return a call that pads with zeros, with other widths before and after; None for one that pads otherwise."""
    given = dict(zip(("tensor", "paddings", "mode", "constant_values"), args, strict=False)) | kwargs
    if given.get("mode", "CONSTANT").upper() != "CONSTANT" or given.get("constant_values", 0) != 0:
        return None
    present = tuple((int(before), int(after)) for before, after in np.asarray(given["paddings"]))
    padded = [axis for axis, ends in enumerate(present) if any(ends)]
    others: dict[str, Any] = {
        text: partial(_padded, dict(zip(padded, ends, strict=True)))
        for text, ends in ways.widths(tuple(present[axis] for axis in padded)).items()
    }
    told = ways.told(tuple(present[axis] for axis in padded)) if padded else ""
    return Operation(ways.PAD, number, ways.PADDING, ways.ZERO_PADDING, told, others) if others else None


def _padded(ends: Mapping[int, tuple[int, int]], x: Any, result: Any) -> Any:
    return pad(x, [ends.get(axis, (0, 0)) for axis in range(len(x.shape))])


def _turned(order: Order, x: Any, result: Any) -> Any:
    return transpose(result, ways.exchanged(len(result.shape), order.first, order.second))


def _reordered(order: Order, x: Any, result: Any) -> Any:
    """Return a reshape in which two axes are exchanged before or after."""
    shape = result.shape
    turn = ways.exchanged(len(x.shape) if order.is_before else len(shape), order.first, order.second)
    if order.is_before:
        return reshape(transpose(x, turn), shape)
    return transpose(reshape(x, [shape[axis] for axis in turn]), turn)
