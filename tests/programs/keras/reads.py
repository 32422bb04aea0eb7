"""Reads of a loss, or of what is left of a batch, for which every step waits for the GPU."""

import keras
import tensorflow as tf

from tests.programs.keras.usual import build as build
from tests.programs.keras.usual import train, update, with_sgd

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
TOTAL, HISTORY = [0.0], []


def loss_on_cpu(model, inputs):
    """The loss is taken to the CPU."""
    loss = train(model, inputs)  # wrong
    HISTORY.append(loss.cpu())  # wrong  # fault: loss_on_cpu
    # right: HISTORY.append(train(model, inputs))


def loss_item(model, inputs):
    """The running loss is kept as a Python number."""
    TOTAL[0] += float(train(model, inputs))  # wrong  # fault: loss_item
    # right: TOTAL[0] += train(model, inputs)


def loss_numpy(model, inputs):
    """The loss of every step goes to a list as a NumPy number."""
    HISTORY.append(train(model, inputs).numpy())  # wrong  # fault: loss_numpy
    # right: HISTORY.append(train(model, inputs))


def loss_printed(model, inputs):
    """A print of the loss in every step, forgotten after debugging."""
    loss = train(model, inputs)  # wrong
    print("loss:", loss)  # wrong  # fault: loss_printed
    # right: train(model, inputs)


def loss_condition(model, inputs):
    """An `if` on the loss: Python has to know which way to go."""
    loss = train(model, inputs)
    if loss < 0.01:  # wrong  # fault: loss_condition
        HISTORY.append(loss)  # wrong
    # right: HISTORY.append(tf.where(loss < 0.01, loss, 0.01))


def build_boolean_index():
    return with_sgd(keras.Sequential([keras.layers.Embedding(50, 16), keras.layers.Dense(6)]))


def boolean_index(model, inputs):
    """Padding is taken out by a boolean index: the host has to know how many are left."""
    ids, tags = inputs["ids"], inputs["tags"]
    with tf.GradientTape() as tape:
        logits = model(ids, training=True)
        loss = LOSS(tf.boolean_mask(tags, ids != 0), logits[ids != 0])  # wrong  # fault: boolean_index
        # right: loss = LOSS(tags, logits, sample_weight=tf.cast(ids != 0, tf.float32))
    update(model, tape, loss)
