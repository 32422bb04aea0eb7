"""The same with channels last: explicit padding where torch's differs from "same"."""

import keras
from keras import layers


def build(strided: str = "valid", permute: bool = True, pool: str = "average") -> keras.Model:
    images = keras.Input((22, 16, 3))
    x = layers.Conv2D(8, 3, padding="same", activation="relu", name="stem")(images)
    x = layers.Conv2D(8, 4, padding="same", activation="relu", name="even")(x)
    if strided == "valid":
        x = layers.ZeroPadding2D(1)(x)
    x = layers.Conv2D(12, 3, strides=2, padding=strided, activation="relu", name="down")(x)
    x = layers.MaxPooling2D(3, strides=1, padding="same")(x)
    x = layers.Conv2D(12, 3, dilation_rate=2, activation="relu", name="dilated")(x)
    x = layers.Conv2D(16, (1, 3), padding="same", use_bias=False, name="row")(x)
    x = layers.AveragePooling2D(2)(x) if pool == "average" else layers.MaxPooling2D(2)(x)
    if permute:
        x = layers.Permute((3, 1, 2))(x)
    return keras.Model(images, layers.Dense(7, name="head")(layers.Flatten()(x)))
