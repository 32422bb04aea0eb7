"""Dropout with a counter-based random source, so that both frameworks draw the same masks.

Keras's own masks come from a generator's state, which no other framework, and no other device layout of the same model,
can reproduce. Here each element's bit is a hash of a key and of the element's number in its tensor; it is the same on
every device, in every process and in every framework. parity/core/random.py holds the same source in NumPy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from parity.core.random import GOLDEN32, MIX32, WORD


class Key(NamedTuple):
    """What identifies a mask: two words (parity.core.random.mask_key), the training step, the module's call in it."""

    words: tf.Tensor
    step: tf.Tensor
    call: tf.Tensor


def dropout(x: tf.Tensor, numbers: tf.Tensor, rate: float, key: Key) -> tf.Tensor:
    """Set each element, as `number` counts them, to zero with probability `rate`; scale others by 1 / (1 - rate)."""
    scale = 0.0 if rate == 1.0 else 1.0 / (1.0 - rate)
    return x * (tf.cast(keep(numbers, rate, key), x.dtype) * tf.constant(scale, x.dtype))


@tf.function(autograph=False)  # a step draws many masks: trace once per shape
def keep(numbers: tf.Tensor, rate: float, key: Key) -> tf.Tensor:
    """Return which of the numbered elements are kept, as booleans."""
    return words(numbers, key) >= round(rate * 2**32)


@tf.function(autograph=False)
def words(numbers: tf.Tensor, key: Key) -> tf.Tensor:
    """Return 32 random bits for each number, in int64."""
    first, second = tf.unstack(mix32(mix32(key.words + key.step) + key.call))
    return mix32(tf.bitwise.bitwise_xor(numbers * GOLDEN32 + first, second))


def number(x: tf.Tensor, order: Sequence[int] | None = None, start: int = 0, whole: int | None = None) -> tf.Tensor:
    """Enumerate the elements of x row by row, from 0; return int64 of x's shape.

    `order` lists the axes in PyTorch's order if it is not x's own, so that an element has the same number on both
    sides. If x is a part of a tensor that is cut along its last axis, the part begins at `start`, and the axis has
    `whole` elements.
    """
    sizes = x.shape.as_list() if x.shape.is_fully_defined() else tf.unstack(tf.shape(x, tf.int64))
    starts = [0] * (len(sizes) - 1) + [start]
    return _number(sizes, [*sizes[:-1], whole] if whole else sizes, starts, order or range(len(sizes)))


def mix32(x: tf.Tensor) -> tf.Tensor:
    """Hash the lower 32 bits of x (C. Wellons's lowbias32, github.com/skeeto/hash-prospector)."""
    x = x & WORD
    x = ((x ^ tf.bitwise.right_shift(x, 16)) * MIX32[0]) & WORD
    x = ((x ^ tf.bitwise.right_shift(x, 15)) * MIX32[1]) & WORD
    return x ^ tf.bitwise.right_shift(x, 16)


@tf.function(autograph=False)
def _number(sizes: Sequence, whole: Sequence, starts: Sequence[int], order: Sequence[int]) -> tf.Tensor:
    """Enumerate the elements of a part that begins at the indices `starts` of a tensor of shape `whole`."""
    stride, numbers = 1, tf.zeros((), tf.int64)
    for axis in reversed(order):
        shape = [size if i == axis else 1 for i, size in enumerate(sizes)]
        row = tf.range(starts[axis], starts[axis] + sizes[axis], dtype=tf.int64)
        numbers += tf.reshape(row * stride, shape)
        stride *= whole[axis]
    return numbers
