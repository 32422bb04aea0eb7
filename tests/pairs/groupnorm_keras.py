"""The same."""

import keras
from keras import layers


def build(groups: int = 2, epsilon: float = 1e-5) -> keras.Model:
    images = keras.Input((10, 12, 3))
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(images)
    x = layers.Activation("silu")(layers.GroupNormalization(4, epsilon=epsilon)(x))
    y = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    y = layers.Activation("silu")(layers.GroupNormalization(groups, epsilon=1e-5)(y))
    pooled = layers.GlobalAveragePooling2D()(layers.Add()([x, y]))
    return keras.Model(images, layers.Dense(6)(pooled))
