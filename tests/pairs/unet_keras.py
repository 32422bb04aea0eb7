"""The same; what is joined last decides which channels of the next kernel see it."""

import keras
from keras import layers


def double(x, filters: int):
    x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return layers.Conv2D(filters, 3, padding="same")(x)


def build(mode: str, joined: str = "past first") -> keras.Model:
    images = keras.Input((8, 12, 2))
    past = double(images, 6)
    x = double(layers.MaxPooling2D()(past), 8)
    x = layers.UpSampling2D(interpolation=mode)(x)
    parts = [past, x] if joined == "past first" else [x, past]
    return keras.Model(images, double(layers.Concatenate()(parts), 3))
