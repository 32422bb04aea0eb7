"""Updates that are not made, or made by a part of the gradients, and what does not belong into a step."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.programs.keras.usual import compiled, mlp, update, with_sgd

PARTS = 4


def build_accumulated():
    return with_sgd(keras.Sequential([layers.Dense(4)]))


def accumulated(model, inputs):
    """Gradients of four parts of the batch are added up; nobody divides by four."""
    total = None
    for part in tf.split(inputs["x"], PARTS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(part, training=True)))  # wrong
            # right: loss = tf.reduce_mean(tf.square(model(part, training=True))) / PARTS
        gradients = tape.gradient(loss, model.trainable_variables)  # fault: accumulated
        total = gradients if total is None else [a + b for a, b in zip(total, gradients, strict=True)]
    model.optimizer.apply(total, model.trainable_variables)


def build_never_applied():
    return compiled(mlp())


def never_applied(model, inputs):
    """Gradients are computed, and no optimizer applies them."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)  # fault: never_applied
    model.number = len(gradients)
    # right: model.optimizer.apply(gradients, model.trainable_variables)


def build_absurd_rate():
    """A learning rate of 1e18: one update replaces the parameters."""
    model = keras.Sequential([keras.Input((16,)), layers.Dense(8, "tanh"), layers.Dense(4)])
    optimizer = keras.optimizers.SGD(learning_rate=1e18)  # wrong  # fault: absurd_rate
    # right: optimizer = keras.optimizers.Adam(0.1)
    model.compile(optimizer, "mse")
    return model


def absurd_rate(model, inputs):
    model.fit(inputs["x"], inputs["y"], verbose=0)


class Half(keras.Model):
    """Layers that compute in float16, and no loss scaling: small gradients become zero."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(32, activation="relu", dtype="mixed_float16")  # fault: half_unscaled
        self.out = layers.Dense(4, dtype="float32")

    def call(self, x):
        return self.out(self.hidden(x))


def build_half_unscaled():
    model = Half()
    model.optimizer = keras.optimizers.Adam(0.001)
    # right: model.optimizer = keras.optimizers.LossScaleOptimizer(model.optimizer)
    return model


def half_unscaled(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"])))
        scaled = model.optimizer.scale_loss(loss)
    update(model, tape, scaled)


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = layers.Dense(8, activation="tanh")
        self.head = layers.Dense(4)

    def call(self, x):
        return self.head(self.body(x))


def net():
    return with_sgd(Net())


build_head_not_optimized = net


def head_not_optimized(model, inputs):
    """The optimizer was built with the body's variables only, and is given theirs only."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"])))
    gradients = tape.gradient(loss, model.trainable_variables)
    pairs = list(zip(gradients, model.trainable_variables, strict=True))
    pairs = pairs[:2]  # wrong
    model.optimizer.apply_gradients(pairs)


def apply(model, tape, loss):
    gradients = tape.gradient(loss, model.trainable_variables)
    pairs = zip(gradients, model.trainable_variables, strict=True)
    model.optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])


build_outside_tape = net


def outside_tape(model, inputs):
    """The features are computed before the tape begins, though they shall be trained too."""
    hidden = model.body(inputs["x"])  # wrong  # fault: outside_tape
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model.head(hidden)))  # wrong
        # right: loss = tf.reduce_mean(tf.square(model(inputs["x"])))
    apply(model, tape, loss)


def build_forward_before_tape():
    return with_sgd(mlp())


def forward_before_tape(model, inputs):
    """A forward pass that was over before the tape began."""
    outputs = model(inputs["x"], training=True)  # wrong  # fault: forward_before_tape
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(outputs))  # wrong
        # right: loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def build_compiled_in_step():
    return mlp()  # wrong
    # right: model = mlp()
    # right: model.compile(keras.optimizers.Adam(1e-3), loss="mse")
    # right: return model


def compiled_in_step(model, inputs):
    """compile() in the loop: each step has a new optimizer, which has forgotten its momentum, and traces anew."""
    model.compile(keras.optimizers.Adam(1e-3), loss="mse")  # wrong  # fault: compiled_in_step
    model.train_on_batch(inputs["x"], inputs["y"])


def build_predict_in_step():
    model, target = mlp(), mlp()
    target.set_weights(model.get_weights())
    model.optimizer = keras.optimizers.Adam(1e-3)
    model.target = target
    model.learned = list(model.trainable_variables[:4])
    return model


def predict_in_step(model, inputs):
    """Values that the next state has by a target network, computed by predict() in each step."""
    values = model.target.predict(inputs["later"], batch_size=16, verbose=0)  # wrong  # fault: predict_in_step
    # right: values = model.target.predict_on_batch(inputs["later"])
    aims = inputs["reward"] + 0.99 * np.max(values, axis=1)
    with tf.GradientTape() as tape:
        best = tf.reduce_max(model(inputs["x"], training=True), -1)
        loss = tf.reduce_mean(tf.square(aims - best))
    gradients = tape.gradient(loss, model.learned)
    model.optimizer.apply(gradients, model.learned)
