"""TensorFlow's functions that make tensors, and Python's numbers, which it makes float32 whatever Keras's are."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# Functions that make a tensor of a requested dtype, or by default of float32.
MAKERS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (tf, ("cast", "saturate_cast", "constant", "convert_to_tensor", "zeros", "ones", "range", "eye", "one_hot")),
    (tf, ("zeros_like", "ones_like", "sequence_mask", "map_fn")),
    (tf.dtypes, ("cast", "saturate_cast")),
    (tf.linalg, ("eye",)),
)
CONSTANT, WHERE = tf.constant, tf.where  # as they are where they are not wrapped


def functions() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield TensorFlow's mathematical functions under each name that they have in tf.math and in tf itself."""
    known = {id(each): each for each in vars(tf.math).values() if inspect.isfunction(each)}
    known[id(tf.where)] = tf.where
    for owner in (tf.math, tf):
        yield from ((owner, name, known[id(each)]) for name, each in [*vars(owner).items()] if id(each) in known)


def numbers_high(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Let a function of Python's numbers alone compute in float64: tf.sqrt(8.0) is a float32 otherwise.

    So is, in a graph, a number before a tensor.
    """
    given = [tf.as_dtype(each.dtype) for each in parts([args, kwargs]) if hasattr(each, "dtype")]
    floats = {dtype for dtype in given if dtype.is_floating}
    numbers = args[1:] if function is WHERE else args
    is_before = bool(numbers) and isinstance(numbers[0], float)
    is_high = is_before and floats == {tf.float64} if floats else not given or function is WHERE
    return given_high(function, *args, **kwargs) if is_high else function(*args, **kwargs)


def given_high(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Give a function Python's floats as float64."""
    return function(*map(_high, args), **{name: _high(each) for name, each in kwargs.items()})


def _high(value: Any) -> Any:
    """Return a float, or a list of numbers with a float among them, as float64; anything else as it is."""
    within = [] if isinstance(value, dict) else list(parts(value))
    is_float = any(isinstance(each, float) for each in within)
    return CONSTANT(value, tf.float64) if is_float and all(isinstance(each, (int, float)) for each in within) else value


def parts(value: Any) -> Iterator[Any]:
    """Return what a structure of dicts, lists and tuples is made of."""
    if isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from parts(each)
    else:
        yield value
