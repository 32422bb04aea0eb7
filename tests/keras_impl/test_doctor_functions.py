"""Why tf.functions are traced again, and what runs in Python after all."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.ops import script_ops

from keras_impl.instruments.devices import pretend
from keras_impl.instruments.functions import Functions

FILE = "tests/keras_impl/test_doctor_functions.py"
X, Y = tf.ones((8, 4)), tf.ones((8, 1))


def watched(step: Callable[[], object], times: int = 3) -> Functions:
    functions = Functions()
    for _ in range(times):
        with functions:
            step()
    return functions


def changes(step: Callable[[], object], times: int = 3) -> list[str]:
    return [retrace.change for retrace in watched(step, times).retraces.values()]


class Block:
    """With a method that is compiled for each object."""

    @tf.function
    def double(self, x):
        return x * 2


def test_a_dtype_and_more_than_one_leaf():
    @tf.function
    def train(pair):
        return tf.cast(pair[1], tf.float32)

    kinds = iter((tf.float32, tf.int32))
    assert changes(lambda: train((X, tf.cast(Y, next(kinds)))), 2) == ["pair[1]: float32[8, 1] -> int32[8, 1]"]


def test_another_object():
    @tf.function
    def train(block, x):
        return block.double(x)

    assert changes(lambda: train(Block(), X)) == ["block: another object, a Block"]


def test_shapes_within_a_step():
    @tf.function
    def train(x):
        return x * 2

    assert changes(lambda: [train(X[:size]) for size in (3, 4)]) == ["x: float32[3, 4] -> float32[4, 4]"]


def test_a_trace_for_each_device():
    @tf.function
    def train(x):
        return x * 2

    def step():
        for device in ("GPU:0", "GPU:1"):
            with tf.device(device):
                train(X)

    with pretend(2):
        assert not changes(step)


def test_keras_train_functions():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert not changes(lambda: model.train_on_batch(X, Y))
    model.compile("sgd", "mse")
    sizes = iter((8, 7))
    (retrace,) = watched(lambda: model.train_on_batch(X[: (size := next(sizes))], Y[:size]), 2).retraces.values()
    assert retrace.function == "one_step_on_data (Keras)"
    assert retrace.source.startswith(f"{FILE}:")


def test_fit():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert not changes(lambda: model.fit(np.ones((7, 4)), np.ones((7, 1)), batch_size=4, verbose=0))


def test_python_that_is_no_matter():
    def step():
        tf.py_function(lambda x: x, [X], tf.float32)
        for _ in tf.data.Dataset.from_generator(lambda: iter([1.0]), output_signature=tf.TensorSpec([])):
            pass

    assert not watched(step).eager


def test_eager_by_a_switch():
    train = tf.function(lambda x: x * 2)
    tf.config.run_functions_eagerly(True)
    try:
        (eager,) = watched(lambda: train(X)).eager.values()
    finally:
        tf.config.run_functions_eagerly(False)
    assert eager.what == "run_eagerly"


def test_afterwards_all_is_as_it_was():
    before = Function.__call__, script_ops._internal_py_func, keras.Model.fit, keras.Model.train_on_batch
    with Functions():
        assert Function.__call__ is not before[0]
    assert (Function.__call__, script_ops._internal_py_func, keras.Model.fit, keras.Model.train_on_batch) == before
    assert "fit" not in vars(keras.Model)
