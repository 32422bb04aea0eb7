"""An observed step: what is called in it, how it fails, and that it is bit by bit the program's own."""

import keras
import numpy as np
import tensorflow as tf
from observing import DEVICES, line, observed, on_host
from tensorflow.python.eager import execute
from tensorflow.python.framework import constant_op, ops

from keras_impl.doctor.observer import Observer
from keras_impl.instruments.build import Building
from keras_impl.instruments.devices import pretend

X = np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8)
PATCHED = (
    *((keras.Layer, "__call__"), (tf.GradientTape, "gradient"), (tf.GradientTape, "stop_recording")),
    *((ops._EagerTensorBase, "numpy"), (ops._EagerTensorBase, "__bool__"), (constant_op, "convert_to_eager_tensor")),
    *((np, "asarray"), (execute, "execute"), (keras.optimizers.Optimizer, "apply")),
)


class Net(keras.Model):
    """With what draws numbers and what keeps statistics."""

    def __init__(self):
        super().__init__()
        self.ids = keras.layers.Embedding(8, 8)
        self.norm = keras.layers.BatchNormalization()
        self.drop = keras.layers.Dropout(0.5)
        self.head = keras.layers.Dense(4)
        self.own = keras.optimizers.Adam(0.1)

    def call(self, x, training=False):
        x = x + self.ids(tf.range(4))
        return self.head(self.drop(self.norm(x, training=training), training=training))


def train(model, inputs):
    with tf.GradientTape() as tape:
        y = model(inputs["x"], training=True) + tf.random.normal((4, 4))
        loss = keras.losses.MeanSquaredError()(inputs["t"], y)
    gradients = tape.gradient(loss, model.trainable_variables)
    model.own.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


@tf.function
def in_graph(x):
    return x * 2


def state(is_observed):
    """All variables after three steps, the second observed or not, all eager."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    tf.config.run_functions_eagerly(True)
    with pretend(2):
        with Building() as building:
            model = Net()
        observer = Observer(model, building, DEVICES)
        for number in range(3):
            inputs = {"x": on_host(X * number), "t": on_host(X[:, :4])}
            if is_observed and number != 1:
                with observer.step(inputs) as seen:
                    train(model, inputs)
                assert not seen.failure
            else:
                train(model, inputs)
        drawn = tf.random.normal((4,))
    tf.config.run_functions_eagerly(False)
    return [np.asarray(each) for each in (*model.variables, *model.own.variables, drawn)]


def test_a_step_is_bit_by_bit_the_programs_own():
    for seen, plain in zip(state(True), state(False), strict=True):
        assert np.array_equal(seen, plain)


def test_nothing_is_left_behind():
    before = [getattr(owner, name) for owner, name in PATCHED]

    def step(model, inputs):
        assert tf.config.functions_run_eagerly()
        assert getattr(*PATCHED[0]) is not before[0]
        raise RuntimeError

    (seen,) = observed(Net, step)
    assert seen.failure.exception == "RuntimeError"
    assert [getattr(owner, name) for owner, name in PATCHED] == before
    assert not tf.config.functions_run_eagerly()
    assert tf.debugging.is_traceback_filtering_enabled()
    assert keras.config.is_traceback_filtering_enabled()


def test_calls_and_whether_they_train():
    def step(model, inputs):
        model(inputs["x"], training=True)  # call

    keras.utils.clear_session()
    with pretend(2):
        with Building() as building:
            model = Net()
        inputs = {"x": on_host(X)}
        with Observer(model, building, DEVICES).step(inputs) as seen:
            step(model, inputs)
    assert [call.module for call in seen.calls] == ["(model)", "ids", "norm", "drop", "head"]
    whole, ids, norm, *_ = seen.calls
    assert (whole.source, whole.inputs[0].origin, ids.inputs[0].dtype) == (line(step, "# call"), "input x", "int32")
    assert (norm.outputs[0].device, norm.outputs[0].origin) == ("GPU:0", "output of norm")
    trained = {module.name: module.training for module in building.modules(model)}
    assert trained["norm"] and trained["drop"]


def test_functions_run_op_by_op():
    def step(model, inputs):
        float(in_graph(inputs["x"])[0, 0])

    (seen,) = observed(Net, step, {"x": X})
    assert [copy.what for copy in seen.copies] == ["implicit", "item"]
