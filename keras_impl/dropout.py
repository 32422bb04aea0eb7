"""Dropout by a counter-based source: a mask is computed from a key and each element's number, and never stored.

Keras's own masks come from a generator's state, so that no other framework, and no other layout of
the same model, can draw them again. These are the same on every device, in every process, and in
every framework: parity/core/random.py has the source in NumPy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from parity.core.random import GOLDEN32, MIX32, WORD


class Key(NamedTuple):
    """What a mask is drawn from.

    `words`: two, for the module (parity.core.random.mask_key); then the step, and the call within it.
    """

    words: tf.Tensor
    step: tf.Tensor
    call: tf.Tensor


def dropout(x: tf.Tensor, numbers: tf.Tensor, rate: float, key: Key) -> tf.Tensor:
    """x with each element set to zero with the probability `rate`, the others scaled so that the mean stays.

    `numbers`: each element's own, as `number` counts them.
    """
    scale = 0.0 if rate == 1.0 else 1.0 / (1.0 - rate)
    return x * (tf.cast(keep(numbers, rate, key), x.dtype) * tf.constant(scale, x.dtype))


@tf.function(autograph=False)  # a step has many masks: traced once for all of a shape
def keep(numbers: tf.Tensor, rate: float, key: Key) -> tf.Tensor:
    """Which of the numbered elements stay."""
    first, second = tf.unstack(mix32(mix32(key.words + key.step) + key.call))
    return mix32(tf.bitwise.bitwise_xor(numbers * GOLDEN32 + first, second)) >= round(rate * 2**32)


def number(x: tf.Tensor, order: Sequence[int] | None = None, start: int = 0, whole: int | None = None) -> tf.Tensor:
    """The elements of x counted row by row, its axes taken in another `order` if one is given.

    Where x is a part of a tensor cut along its last axis: from `start` on, of `whole` elements.
    """
    sizes = x.shape.as_list() if x.shape.is_fully_defined() else tf.unstack(tf.shape(x, tf.int64))
    starts = [0] * (len(sizes) - 1) + [start]
    return _number(sizes, [*sizes[:-1], whole] if whole else sizes, starts, order or range(len(sizes)))


def mix32(x: tf.Tensor) -> tf.Tensor:
    """The lower 32 bits of x, hashed (C. Wellons' lowbias32, github.com/skeeto/hash-prospector)."""
    x = x & WORD
    x = ((x ^ tf.bitwise.right_shift(x, 16)) * MIX32[0]) & WORD
    x = ((x ^ tf.bitwise.right_shift(x, 15)) * MIX32[1]) & WORD
    return x ^ tf.bitwise.right_shift(x, 16)


@tf.function(autograph=False)
def _number(sizes: Sequence, whole: Sequence, starts: Sequence[int], order: Sequence[int]) -> tf.Tensor:
    """Of a part that begins at `starts` in a tensor of the sizes `whole`."""
    stride, numbers = 1, tf.zeros((), tf.int64)
    for axis in reversed(order):
        along = [size if i == axis else 1 for i, size in enumerate(sizes)]
        row = tf.range(starts[axis], starts[axis] + sizes[axis], dtype=tf.int64)
        numbers += tf.reshape(row * stride, along)
        stride *= whole[axis]
    return numbers
