"""Ids of words that are made float32 before the embedding looks them up."""

import tensorflow as tf

from tests.programs.keras.double_ids import build as build
from tests.programs.keras.double_ids import train


def step(model, inputs):
    src = tf.cast(inputs["src"], tf.float32)  # wrong  # fault
    train(model, src)  # wrong
    # right: train(model, inputs["src"])
