"""Pretended GPUs: GPU:i of the program is the logical device CPU:i+1, and CPU:0 is the host.

What is replaced for this is in instruments/pretended.py, and is restored when the context ends.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import tensorflow as tf
from tensorflow.python.eager import context

from keras_impl.instruments.pretended import FIRST, patches


@contextmanager
def pretend(count: int) -> Iterator[None]:
    """Provide `count` devices "GPU:i" within the block; the process needs count + 1 logical CPUs."""
    thread = context.context()
    previous = thread.device_name, thread.device_spec
    with ExitStack() as stack:
        for patch in patches(count):
            stack.enter_context(patch)
        # Not tf.device: it would start TensorFlow's runtime, which the program may still want to configure.
        thread._set_device(FIRST, tf.DeviceSpec.from_string(FIRST))
        try:
            yield
        finally:
            thread._set_device(*previous)
