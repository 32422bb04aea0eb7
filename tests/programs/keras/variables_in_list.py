"""Variables that Keras tracks in lists and in a dict, which learn as others do, and a list of those of a sublayer."""

import keras
import tensorflow as tf
from keras import layers


class Scaled(layers.Layer):
    def build(self, shape):
        self.scales = [self.add_weight(shape=shape[-1:], initializer="ones") for _ in range(3)]
        self.shifts = {"low": self.add_weight(shape=shape[-1:], initializer="zeros")}

    def call(self, x):
        for scale in self.scales:
            x = tf.tanh(x * scale)
        return x + self.shifts["low"]


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [Scaled(), Scaled()]
        self.mixed = [keras.Variable(0.5), keras.Variable(0.5)]
        self.head = layers.Dense(4)
        self.head.build((None, 16))
        self.decayed = [self.head.kernel]

    def call(self, x):
        outputs = [block(x) for block in self.blocks]
        return self.head(self.mixed[0] * outputs[0] + self.mixed[1] * outputs[1])


def build_right():
    model = Net()
    model.optimizer = keras.optimizers.Adam(1e-3)
    return model


def step_right(model, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs["x"], training=True)))
        loss += 1e-4 * tf.add_n([tf.reduce_sum(tf.square(variable)) for variable in model.decayed])
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
