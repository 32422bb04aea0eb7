"""The same; torch's output_padding is a row and a column more at the start, to crop."""

import keras
from keras import layers


def build(crop: tuple[int, int] = (1, 0)) -> keras.Model:
    x = images = keras.Input((8, 12, 2))
    x = layers.Conv2D(6, 3, strides=2, name="down1")(layers.ZeroPadding2D(1)(x))
    x = layers.PReLU(shared_axes=[1, 2])(x)
    code = layers.Conv2D(10, 2, strides=2, activation="tanh", name="down2")(x)
    x = layers.Conv2DTranspose(10, 2, strides=2, name="up1")(code)
    x = layers.PReLU(shared_axes=[1, 2])(x)
    x = layers.Conv2DTranspose(6, 3, strides=2, name="up2")(x)
    x = layers.Cropping2D((tuple(crop), tuple(crop)))(x)
    x = layers.PReLU(shared_axes=[1, 2])(x)
    return keras.Model(images, layers.Conv2DTranspose(2, 4, strides=2, padding="same", activation="sigmoid")(x))
