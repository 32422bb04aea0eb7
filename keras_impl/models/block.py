"""Blocks and stages: a model as a chain of steps that can be cut into consecutive parts for model parallelism."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

Tensors = tf.Tensor | tuple[tf.Tensor, ...]


class Block(NamedTuple):
    """One step of a model: a few layers, and the function that applies them.

    `forward` takes what the previous block returned: one tensor, or the members of a tuple as separate arguments; and
    the keyword argument `training`.
    """

    modules: list[keras.Layer]
    forward: Callable[..., Tensors]


class Stage:
    """Consecutive blocks as one callable."""

    def __init__(self, blocks: list[Block]):
        self.parts = [module for block in blocks for module in block.modules]
        self.blocks = blocks

    @property
    def variables(self) -> list[keras.Variable]:
        """Return the trainable variables of all blocks of this stage."""
        return [variable for part in self.parts for variable in part.trainable_variables]

    def call(self, *tensors: tf.Tensor, training: bool = False) -> Tensors:
        for block in self.blocks:
            tensors = as_tuple(block.forward(*tensors, training=training))
        return tensors if len(tensors) > 1 else tensors[0]


def stages(blocks: list[Block], count: int, sizes: Sequence[int] = ()) -> list[Stage]:
    """Cut the blocks into `count` stages of `sizes` blocks each.

    By default they are of nearly equal length, and the first stages get the extra blocks. Raises ValueError if the
    sizes do not add up to the number of blocks.
    """
    if sizes and sum(sizes) != len(blocks):
        raise ValueError(f"the model has {len(blocks)} blocks, received stages of {list(sizes)}")
    ends = np.cumsum(sizes or [len(part) for part in np.array_split(range(len(blocks)), count)])
    return [Stage(blocks[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def as_tuple(tensors: Tensors) -> tuple[tf.Tensor, ...]:
    """Return the output of a block or stage as a tuple, ready to be the arguments of the next one."""
    return tensors if isinstance(tensors, tuple) else (tensors,)
