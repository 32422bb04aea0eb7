"""The same with channels last: N, H, W, C."""

import keras
from keras import layers


def build(epsilon: float = 1e-5, transposed: bool = False) -> keras.Model:
    images = keras.Input((6, 6, 3))
    x = layers.Conv2D(6, 3, padding="same", activation="relu")(images)
    y = layers.Conv2D(6, 3, padding="same")(x)
    y = layers.BatchNormalization(momentum=0.9, epsilon=epsilon)(y)
    x = layers.ReLU()(x + y)
    return keras.Model(images, layers.Permute((2, 1, 3))(x) if transposed else x)
