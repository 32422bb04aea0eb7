"""Random numbers that both frameworks draw alike: what a user's model draws beside dropout, such as a sampler's noise.

They are made of the bits that a dropout mask of as many elements has at its place, so that `tf.random.uniform([n]) < p`
and a dropout of n elements agree. The values are replaced, and nothing else: the program's own seeds go on. Keras draws
its random numbers by TensorFlow's functions too.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import tensorflow as tf

from parity.core.patches import Original, around
from parity.core.random import NORMAL, UNIFORM, gamma

# The numbers of a kind for the elements of a tensor, which was drawn with a seed, or with none.
Source = Callable[[str, tf.Tensor, Any], tf.Tensor]


def patches(source: Source) -> Iterator[AbstractContextManager[Any]]:
    """Yield patches of TensorFlow's random functions, which then take their numbers from a source."""
    for owner, functions in ((tf.random, FUNCTIONS), (tf.random.Generator, METHODS)):
        for name, (kind, values) in functions.items():
            yield around(owner, name, partial(_on_draw, source, kind, values))
    for name in ("gamma", "stateless_gamma"):
        yield around(tf.random, name, partial(_on_gamma, source))
    yield around(tf.random, "shuffle", partial(_on_shuffle, source))


def numbers(kind: str, of: tf.Tensor, words: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Return a random number for each of some numbered elements, in float64, exact in float32.

    Uniform in (0, 1), or approximately standard normal: the sum of twelve uniform numbers of 16 bits (Irwin-Hall).
    `words` returns 32 random bits for each number.
    """
    if kind == UNIFORM:
        return (CAST(tf.bitwise.right_shift(words(of), 9), tf.float64) + 0.5) * 2.0**-23
    parts = [words(of * 6 + part) for part in range(6)]
    total = tf.add_n([(each & 0xFFFF) + tf.bitwise.right_shift(each, 16) for each in parts])
    return CAST(total + (6 - 6 * 2**16), tf.float64) * 2.0**-16


def _on_draw(
    source: Source, kind: str, values: Callable[..., tf.Tensor], draw: Original, *args: Any, **kwargs: Any
) -> tf.Tensor:
    """Draw, and return in place of what was drawn the values that the source's numbers give."""
    bound = inspect.signature(draw).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    seed = given["self"].state.value() if "self" in given else given.get("seed")  # a generator's is its state
    drawn = draw(*args, **kwargs)
    has_all_bits = drawn.dtype.is_integer and given["maxval"] is None
    if has_all_bits or not drawn.shape.is_fully_defined():
        return drawn
    return CAST(values(source(kind, drawn, seed), drawn.dtype, given), drawn.dtype)


def _on_gamma(source: Source, draw: Original, *args: Any, **kwargs: Any) -> tf.Tensor:
    given, drawn = inspect.signature(draw).bind(*args, **kwargs).arguments, draw(*args, **kwargs)
    if not drawn.shape.is_fully_defined():
        return drawn
    normal, uniform = (source(kind, drawn, given.get("seed")) for kind in (NORMAL, UNIFORM))
    beta = given.get("beta")
    return CAST(gamma(_high(given["alpha"]), normal, uniform) / _high(1 if beta is None else beta), drawn.dtype)


def _on_shuffle(
    source: Source, shuffle: Original, value: Any, seed: int | None = None, name: str | None = None
) -> tf.Tensor:
    value = tf.convert_to_tensor(value)
    if not value.shape.is_fully_defined():
        return shuffle(value, seed, name)
    return tf.gather(value, tf.argsort(source(UNIFORM, tf.zeros(value.shape[:1]), seed), stable=True))


def _normal(of: tf.Tensor, _: tf.DType, given: dict[str, Any]) -> tf.Tensor:
    return of * _high(given["stddev"]) + _high(given["mean"])


def _uniform(of: tf.Tensor, dtype: tf.DType, given: dict[str, Any]) -> tf.Tensor:
    limits = (("minval", 0), ("maxval", 1))
    lower, upper = (_high(usual if given[name] is None else given[name]) for name, usual in limits)
    values = of * (upper - lower)
    return (tf.floor(values) if dtype.is_integer else values) + lower


def _high(value: Any) -> tf.Tensor:
    """Return a number in float64; tf.cast would make a float32 of one of Python's before."""
    return CAST(value, tf.float64) if tf.is_tensor(value) else tf.constant(value, tf.float64)


CAST = tf.cast  # the original
METHODS = {"normal": (NORMAL, _normal), "uniform": (UNIFORM, _uniform)}
FUNCTIONS = METHODS | {f"stateless_{name}": values for name, values in METHODS.items()}
