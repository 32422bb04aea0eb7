"""The port of train.py with a loop of its own: a tf.function, a loss written out, a rate that is set by hand."""

import keras
import numpy as np
import tensorflow as tf
from data import CLASSES, SIZE
from keras import layers


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = layers.Conv2D(4, 3), layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.flatten, self.hidden = layers.Flatten(), layers.Dense(16, activation="relu")
        self.dropout, self.head = layers.Dropout(0.2), layers.Dense(CLASSES)

    def call(self, x, training=False):
        x = tf.nn.relu(self.norm(self.conv(x), training=training))
        return self.head(self.dropout(self.hidden(self.flatten(x)), training=training))


def main():
    model, optimizer = Net(), keras.optimizers.SGD(0.05)
    images = np.random.default_rng(0).normal(size=(48, SIZE, SIZE, 3)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((images, np.arange(48) % CLASSES)).shuffle(48).batch(24)

    @tf.function
    def train_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for _ in range(2):
        for batch in data:
            train_step(*batch)
        print(float(tf.reduce_mean(model(images))))
        optimizer.learning_rate = optimizer.learning_rate * 0.5


if __name__ == "__main__":
    main()
