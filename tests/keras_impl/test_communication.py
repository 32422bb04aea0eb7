"""How long a step communicates, as tf.distribute and copies between devices tell it."""

import tensorflow as tf

from keras_impl.doctor import observer
from keras_impl.instruments import devices
from parity.core.clock import Clock


def timed(step) -> float | None:
    clock = Clock(lambda: None)
    with observer.timed_communication(clock), clock.step():
        step()
    (found,) = clock.result("cpu")
    assert found.communication is None or 0 < found.communication <= found.step
    return found.communication


def test_a_reduction_is_told():
    strategy = tf.distribute.MirroredStrategy(devices.names(2))

    def replica():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.ones(100_000))

    assert timed(lambda: strategy.run(lambda: tf.ones(8) + 1)) is None
    assert timed(lambda: strategy.run(replica)) is not None


def test_a_copy_to_another_device_is_told():
    first, second = devices.names(2)
    with tf.device(first):
        here = tf.ones(100_000)

    def copied(device):
        with tf.device(device):
            return tf.identity(input=here, name="copied")

    assert timed(lambda: copied(first)) is None
    assert timed(lambda: copied(second)) is not None
    assert timed(tf.function(lambda: copied(second))) is None  # in a graph nothing can be told
