"""The same, one with the norm before the pooling, and one that norms twice."""

import keras
from keras import layers


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.conv, self.pool, self.head = layers.Conv1D(6, 1), layers.GlobalMaxPooling1D(), layers.Dense(3)
        self.norm = layers.LayerNormalization(epsilon=1e-5)

    def call(self, x):
        return self.head(self.norm(self.pool(self.conv(x))))


class Before(Net):
    def call(self, x):
        return self.head(self.pool(self.norm(self.conv(x))))


class Twice(Net):
    def call(self, x):
        return self.head(self.norm(self.norm(self.pool(self.conv(x)))))
