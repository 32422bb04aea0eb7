"""A device that this machine does not have: TensorFlow takes another one, and says nothing."""

import keras
import tensorflow as tf


class Net(keras.Model):
    def __init__(self, device):
        super().__init__()
        self.device = device
        self.dense = keras.layers.Dense(16)

    def call(self, x):
        with tf.device(self.device):
            return self.dense(x)  # fault


def build(device="/GPU:4"):
    tf.config.set_soft_device_placement(True)
    model = Net(device)
    model.build((None, 16))
    model.compile(keras.optimizers.SGD(0.1))
    return model


def build_right():
    return build("/GPU:0")


def step(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"])))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
