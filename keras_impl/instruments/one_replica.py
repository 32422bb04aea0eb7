"""What a script that trains on several devices finds: one replica, whatever strategy of tf.distribute it asks for.

Of TensorFlow's strategies the default one runs a replica in the script's own thread, where it can be suspended.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.python.distribute.distribute_lib import _get_default_strategy

from parity.core.patches import around

NAMES = (
    "MirroredStrategy", "MultiWorkerMirroredStrategy", "OneDeviceStrategy", "TPUStrategy", "CentralStorageStrategy"
)  # fmt: skip
# What can be set once in a process, which has been set.
ONCE = (
    (tf.config, ("set_logical_device_configuration", "set_visible_devices")),
    (tf.config.experimental, ("set_virtual_device_configuration", "set_visible_devices", "set_memory_growth")),
    (tf.config.threading, ("set_intra_op_parallelism_threads", "set_inter_op_parallelism_threads")),
    (tf.debugging, ("set_log_device_placement",)),
)


def patches(on_strategy: Callable[[], None]) -> Iterator[AbstractContextManager[Any]]:
    """Yield what is patched while a script runs; `on_strategy` is called when it makes a strategy.

    One of several workers knows which worker it is: the only one.
    """

    class OneReplica:
        """Stands in for a class of strategies: an instance is the default strategy."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            on_strategy()
            return _get_default_strategy()

    for owner in (tf.distribute, tf.distribute.experimental):
        for name in NAMES:
            if hasattr(owner, name):
                yield mock.patch.object(owner, name, OneReplica)
    for owner, names in ONCE:
        for name in names:
            yield around(owner, name, lambda *_, **__: None)
    only = tf.train.ClusterSpec({"worker": ["localhost:0"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(only, task_type="worker", task_id=0)
    default = _get_default_strategy().extended
    yield mock.patch.object(default, "_cluster_resolver", resolver, create=True)
    # Its own scope is one of variables' creators, which the script, suspended within it, would leave out of turn.
    yield mock.patch.object(default, "_scope", nullcontext)
