"""The same by a train_step that takes three tensors, and a model of all of them."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

MARGIN = 1.0


class Embedding(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.gru, self.last = layers.Dense(8, activation="tanh"), layers.GRU(6), layers.Dense(4)

    def call(self, x):
        return self.last(self.gru(self.first(x)))


embedding = Embedding()
inputs = [keras.Input((4, 5)) for _ in range(3)]
own, alike, other = map(embedding, inputs)
near, far = (ops.sum(ops.square(own - each), -1) for each in (alike, other))


class Siamese(keras.Model):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def train_step(self, data):
        with tf.GradientTape() as tape:
            near, far = self.network(data, training=True)
            loss = ops.mean(ops.relu(near - far + MARGIN))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return {"loss": loss}


model = Siamese(keras.Model(inputs, [near, far]))
model.compile(keras.optimizers.SGD(0.1))
model.fit(tf.data.Dataset.from_tensor_slices(tuple(np.random.normal(size=(3, 48, 4, 5)))).batch(12), epochs=2)
