"""Losses that get the wrong numbers, or whose numbers have no gradient."""

import keras
import tensorflow as tf
from keras import layers

from tests.programs.keras.usual import linear, mlp, update, with_sgd
from tests.programs.keras.usual import linear as build  # noqa: F401 - of the programs without one of their own


def fitted(model, inputs):
    model.fit(inputs["x"], inputs["y"], verbose=0)


def build_softmax_and_logits():
    """A softmax head, compiled with a loss that takes logits; trained by fit."""
    model = mlp(last="softmax")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)  # wrong  # fault: softmax_and_logits
    # right: loss = keras.losses.SparseCategoricalCrossentropy(from_logits=False)
    model.compile("adam", loss=loss, metrics=["accuracy"])
    return model


softmax_and_logits = fitted


def build_logits_as_probabilities():
    """A linear head, compiled with a loss that takes probabilities; trained by fit."""
    model = mlp()
    model.compile(
        optimizer="adam",
        loss="sparse_categorical_crossentropy",  # wrong  # fault: logits_as_probabilities
        # right: loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


logits_as_probabilities = fitted


def build_sigmoid_twice():
    """A sigmoid head, and a binary cross entropy of logits."""
    model = keras.Sequential([keras.Input((16,)), layers.Dense(1), layers.Activation("sigmoid")])
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))  # wrong  # fault: sigmoid_twice
    # right: model.compile("sgd", "binary_crossentropy")
    return model


def on_batch(model, inputs):
    model.train_on_batch(inputs["x"], inputs["y"])


sigmoid_twice = on_batch


class Net(keras.Model):
    """A softmax over axis 0, the batch: the probabilities of a sample do not sum to 1, those of a class do."""

    def __init__(self):
        super().__init__()
        self.body = layers.Dense(32, activation="relu")
        self.head = layers.Dense(4)

    def call(self, x):
        logits = self.head(self.body(x))
        return tf.nn.softmax(logits, axis=0)  # wrong  # fault: softmax_over_batch
        # right: return tf.nn.softmax(logits, axis=-1)


def build_softmax_over_batch():
    model = Net()
    model.compile(keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy")
    return model


softmax_over_batch = on_batch


def build_shuffled_apart():
    model = linear()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def shuffled_apart(model, inputs):
    """Samples and labels are shuffled, each in an order of its own."""
    x = tf.random.shuffle(inputs["x"])
    y = tf.random.shuffle(inputs["y"])  # fault: shuffled_apart
    model.train_on_batch(x, y)


def shuffled_apart_right(model, inputs):
    """In one order; and by fit, which shuffles both alike."""
    order = tf.random.shuffle(tf.range(8))
    model.train_on_batch(tf.gather(inputs["x"], order), tf.gather(inputs["y"], order))
    model.fit(inputs["x"], inputs["y"], shuffle=True, verbose=0)


def binary_logits(model, inputs):
    """Raw scores in a binary cross entropy of a loop, which takes probabilities unless it is told."""
    y = tf.cast(inputs["y"] > 0, tf.float32)
    with tf.GradientTape() as tape:
        scores = model(inputs["x"], training=True)
        losses = keras.losses.binary_crossentropy(y, scores)  # wrong  # fault: binary_logits
        # right: losses = keras.losses.binary_crossentropy(y, tf.sigmoid(scores))
        loss = tf.reduce_mean(losses)
    update(model, tape, loss)


def softmax_in_loop(model, inputs):
    """Probabilities in TensorFlow's cross entropy, which takes logits."""
    with tf.GradientTape() as tape:
        outputs = model(inputs["x"], training=True)
        outputs = tf.nn.softmax(outputs)  # wrong  # fault: softmax_in_loop
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(inputs["y"], outputs))
    update(model, tape, loss)


def loss_of_argmax(model, inputs):
    """A loss of predicted classes, which have no gradients; an accuracy needs none."""
    y = inputs["y"]
    with tf.GradientTape() as tape:
        scores = model(inputs["x"], training=True)
        predicted = tf.cast(tf.argmax(scores, 1), tf.float32)  # wrong
        loss = tf.reduce_mean(tf.square(predicted - tf.cast(y, tf.float32)))  # wrong  # fault: loss_of_argmax
        # right: model.accuracy = tf.reduce_mean(tf.cast(tf.argmax(scores, 1) == y, tf.float32))
        # right: loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)


def outputs_of(outputs):
    return tf.stop_gradient(outputs)  # wrong  # fault: loss_stopped
    # right: return outputs


def loss_stopped(model, inputs):
    """The outputs go through stop_gradient on their way into the loss."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(outputs_of(model(inputs["x"], training=True))))
    update(model, tape, loss)


def build_loss_by_hand():
    return with_sgd(keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(1)]))


def loss_by_hand(model, inputs):
    """Predictions of shape (N, 1) against targets of shape (N,): the loss is of all pairs."""
    with tf.GradientTape() as tape:
        out = model(inputs["x"], training=True)  # wrong
        # right: out = tf.squeeze(model(inputs["x"], training=True), -1)
        loss = tf.reduce_mean(tf.square(out - inputs["y"]))  # fault: loss_by_hand
    update(model, tape, loss)
