"""Times how long a step communicates: the reductions of tf.distribute, and copies from device to device."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import tensorflow as tf

from parity.doctor.clock import Clock

COLLECTIVES = ("reduce", "batch_reduce", "broadcast")


@contextmanager
def timed(clock: Clock) -> Iterator[None]:
    """Add the time of one step, which runs within the block, in which something is sent or waited for.

    That is a part of the other parts' time: reductions are made within the update. Within a tf.function nothing can be
    told, and of eager copies only those of tf.identity; an operation that takes inputs from other devices copies them
    by itself.
    """
    with ExitStack() as stack:
        for name in COLLECTIVES:
            told = _told(clock, getattr(tf.distribute.CrossDeviceOps, name), lambda *_: True)
            stack.enter_context(mock.patch.object(tf.distribute.CrossDeviceOps, name, told))
        stack.enter_context(mock.patch.object(tf, "identity", _told(clock, tf.identity, _is_moved)))
        yield


def _told(clock: Clock, function: Callable[..., Any], is_sent: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        if tf.executing_eagerly() and is_sent(args[0], result):
            clock.wait()
            clock.add("communication", time.perf_counter() - start)
        return result

    return called


def _is_moved(given: Any, result: tf.Tensor) -> bool:
    return tf.is_tensor(given) and given.device != result.device
