"""Layers made in a loop, all of them on the first device."""

import keras
import tensorflow as tf


class Stack(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = []
        for _ in range(4):
            with tf.device("/GPU:0"):  # fault
                block = keras.layers.Dense(64, activation="relu")
                block.build((None, 64))
            self.blocks.append(block)

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class StackRight(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = []
        for number in range(4):
            with tf.device(f"/GPU:{number // 2}"):
                block = keras.layers.Dense(64, activation="relu")
                block.build((None, 64))
            self.blocks.append(block)


def build():
    model = Stack()  # wrong
    # right: model = StackRight()
    model.compile(keras.optimizers.SGD(0.1))
    return model


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"])))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)


def step_right(model, inputs):
    """A tape of each half's own: the backward pass runs where its tape is asked."""
    first, second = model.blocks[:2], model.blocks[2:]
    with tf.device("/GPU:0"), tf.GradientTape() as tape0:
        sent = first[1](first[0](tf.identity(inputs["x"])))
    with tf.device("/GPU:1"):
        with tf.GradientTape() as tape1:
            received = tf.identity(sent)
            tape1.watch(received)
            loss = tf.reduce_mean(tf.square(second[1](second[0](received))))
        last = [variable for block in second for variable in block.trainable_variables]
        returned, *gradients1 = tape1.gradient(loss, [received, *last])
    with tf.device("/GPU:0"):
        early = [variable for block in first for variable in block.trainable_variables]
        gradients0 = tape0.gradient(sent, early, output_gradients=tf.identity(returned))
    model.optimizer.apply([*gradients0, *gradients1], [*early, *last])
