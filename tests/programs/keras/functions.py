"""tf.functions that are traced again and again, left in favour of Python, or frozen where they should not be."""

import itertools

import keras
import numpy as np
import tensorflow as tf

from tests.programs.keras.usual import linear, mlp, update, with_sgd

NUMBERS, LENGTHS = itertools.count(1), itertools.cycle([6, 5, 8, 7])


def trainer(model, prepared=lambda x: x, aim=0.0, **options):
    @tf.function(**options)
    def train(x, y=aim):
        x = prepared(x)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        update(model, tape, loss)
        return loss

    return train


def with_trainer(model, *arguments, **options):
    model.optimizer.build(model.trainable_variables)
    model.train = trainer(model, *arguments, **options)
    return model


class Trainer:
    def __init__(self, model):
        self.model = model

    @tf.function
    def train(self, x, rate):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(x, training=True))) * rate
        update(self.model, tape, loss)
        return loss


def build_retraced_by_number():
    model = linear()
    model.trainer = Trainer(model)
    return model


def retraced_by_number(model, inputs):
    """A tf.function that is given a Python number which differs in each step: it is traced anew each time."""
    rate = 1 / next(NUMBERS)  # wrong
    # right: rate = tf.constant(1 / next(NUMBERS))
    model.trainer.train(inputs["x"], rate)  # fault: retraced_by_number


def build_retraced_by_shape(**options):
    model = with_sgd(keras.Sequential([keras.layers.Embedding(50, 16), keras.layers.Dense(4)]))
    model.train = trainer(model, **options)
    return model


def build_retraced_by_shape_right():
    ids, aim = tf.TensorSpec([None, None], tf.int64), tf.TensorSpec([], tf.float32)
    return build_retraced_by_shape(input_signature=[ids, aim])


def retraced_by_shape(model, inputs):
    """Batches of other lengths, each of which traces the tf.function anew."""
    model.train(inputs["ids"][:, : next(LENGTHS)])  # fault: retraced_by_shape


def build_function_in_step():
    return with_trainer(linear())


def function_in_step(model, inputs):
    """A tf.function that is made in the step, and so made and traced anew each time."""
    trainer(model)(inputs["x"])  # wrong  # fault: function_in_step
    # right: model.train(inputs["x"])


def clipped(values):
    return np.clip(values, -1, 1)


def clip(x):
    """A clip written in NumPy, in a tf.function: it runs in Python, on the host."""
    return tf.ensure_shape(tf.numpy_function(clipped, [x], tf.float32), x.shape)  # wrong  # fault: py_function
    # right: return tf.clip_by_value(x, -1, 1)


def build_py_function():
    return with_trainer(linear(), clip)


def py_function(model, inputs):
    model.train(inputs["x"])


def noisy(x):
    """Noise that NumPy draws in a tf.function: it is drawn when the function is traced, once for all."""
    noise = np.random.normal(0.0, 0.1, size=x.shape).astype("float32")  # wrong  # fault: numpy_noise
    # right: noise = tf.random.normal(x.shape, 0.0, 0.1)
    return x + noise


def build_numpy_noise():
    model = mlp()
    model.optimizer = keras.optimizers.Adam(1e-3)
    return with_trainer(model, noisy)


def numpy_noise(model, inputs):
    model.train(inputs["x"], inputs["y"])


def build_run_eagerly():
    model = mlp()
    model.compile("adam", loss="mse", run_eagerly=True)  # wrong
    # right: model.compile("adam", loss="mse")
    return model


def run_eagerly(model, inputs):
    """run_eagerly=True, left from debugging: Keras trains without a tf.function."""
    model.train_on_batch(inputs["x"], inputs["y"])  # fault: run_eagerly
