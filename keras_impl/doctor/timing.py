"""Times the parts of a step: reports to a clock when each begins and ends, and how long the step communicates.

Within a tf.function the parts cannot be told apart.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from parity.core.clock import Clock, covered
from parity.core.patches import applied, around

COLLECTIVES = ("reduce", "batch_reduce", "broadcast")
PARTS = (
    (keras.Layer, "__call__", "forward"),
    (tf.GradientTape, "gradient", "backward"),
    (keras.optimizers.Optimizer, "apply", "update"),
)


@contextmanager
def timed(clock: Clock, model: keras.Model) -> Iterator[None]:
    """Time one step, which runs within the block."""

    def called(part: str, function: Callable[..., Any], owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        is_part = tf.executing_eagerly() and (part != "forward" or owner is model)
        return (clock.timed(part, function) if is_part else function)(owner, *args, **kwargs)

    with applied(around(owner, name, partial(called, part)) for owner, name, part in PARTS), clock.step():
        yield


@contextmanager
def timed_communication(clock: Clock) -> Iterator[None]:
    """Add the time of one step, which runs within the block, in which something is sent or waited for.

    That is a part of the other parts' time: reductions are made within the update. Within a tf.function nothing can be
    told, and of eager copies only those of tf.identity; an operation that takes inputs from other devices copies them
    by itself.
    """
    spans: list[tuple[float, float]] = []

    def called(is_sent: Callable[..., bool], function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        if tf.executing_eagerly() and is_sent(result, *args, **kwargs):
            clock.wait()
            spans.append((start, time.perf_counter()))
        return result

    always = partial(called, lambda *_, **__: True)
    collectives = applied(around(tf.distribute.CrossDeviceOps, name, always) for name in COLLECTIVES)
    with collectives, around(tf, "identity", partial(called, _is_moved)):
        yield
    if spans:
        clock.add("communication", covered(spans))


def _is_moved(result: tf.Tensor, *args: Any, **kwargs: Any) -> bool:
    given = args[0] if args else kwargs["input"]
    return tf.is_tensor(given) and given.device != result.device
