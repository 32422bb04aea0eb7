"""The port of train_twice.py: pairs of images in a dataset, channels last."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

model = keras.Sequential(
    [
        layers.Conv2D(8, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dropout(0.1),
        layers.Dense(5),
    ]
)
optimizer = keras.optimizers.SGD(0.1)
draws = np.random.default_rng(0)
images = draws.normal(size=(2, 64, 6, 6, 3)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((tuple(images), draws.integers(0, 2, 64).astype("float32"))).batch(16)


@tf.function
def train_step(x, other, alike):
    with tf.GradientTape() as tape:
        distance = tf.reduce_sum(tf.square(model(x, training=True) - model(other, training=True)), 1)
        loss = tf.reduce_mean(alike * distance + (1 - alike) * tf.nn.relu(1 - distance))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


for (x, other), alike in data:
    train_step(x, other, alike)
