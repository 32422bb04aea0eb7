"""A model as a chain of blocks: where it can be cut into consecutive parts."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

Tensors = tf.Tensor | tuple[tf.Tensor, ...]


class Block(NamedTuple):
    """A few layers and what they compute together.

    `forward` takes what the block before returned: one tensor, or several as arguments of their own;
    and `training`.
    """

    modules: list[keras.Layer]
    forward: Callable[..., Tensors]


class Stage:
    """Consecutive blocks as one."""

    def __init__(self, blocks: list[Block]):
        self.parts = [module for block in blocks for module in block.modules]
        self.blocks = blocks

    @property
    def variables(self) -> list[keras.Variable]:
        """All that is trained here."""
        return [variable for part in self.parts for variable in part.trainable_variables]

    def call(self, *tensors: tf.Tensor, training: bool = False) -> Tensors:
        for block in self.blocks:
            tensors = as_tuple(block.forward(*tensors, training=training))
        return tensors if len(tensors) > 1 else tensors[0]


def stages(blocks: list[Block], count: int) -> list[Stage]:
    """The blocks in `count` stages, as equal as can be; the first ones take one block more."""
    ends = np.cumsum([len(part) for part in np.array_split(range(len(blocks)), count)])
    return [Stage(blocks[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def as_tuple(tensors: Tensors) -> tuple[tf.Tensor, ...]:
    """What a block or a stage returned, as the arguments of the next one."""
    return tensors if isinstance(tensors, tuple) else (tensors,)
