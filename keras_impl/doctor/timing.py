"""Times the parts of a step: reports to a clock when each begins and ends.

Within a tf.function the parts cannot be told apart.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from parity.doctor.clock import Clock

PARTS = (
    (keras.Layer, "__call__", "forward"),
    (tf.GradientTape, "gradient", "backward"),
    (keras.optimizers.Optimizer, "apply", "update"),
)


@contextmanager
def timed(clock: Clock, model: keras.Model) -> Iterator[None]:
    """Time one step, which runs within the block."""

    def told(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(owner: Any, *args: Any, **kwargs: Any) -> Any:
            is_part = tf.executing_eagerly() and (part != "forward" or owner is model)
            return (clock.timed(part, function) if is_part else function)(owner, *args, **kwargs)

        return called

    with ExitStack() as stack:
        for owner, name, part in PARTS:
            stack.enter_context(mock.patch.object(owner, name, told(part, getattr(owner, name))))
        stack.enter_context(clock.step())
        yield
