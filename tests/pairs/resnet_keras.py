"""The same: the shortcut first, its convolution of the same shape as the main path's."""

import keras
from keras import layers


def conv(x, filters: int, stride: int, name: str, epsilon: float = 1e-5):
    if stride > 1:
        x = layers.ZeroPadding2D(1, name=f"{name}_pad")(x)
    padding = "same" if stride == 1 else "valid"
    x = layers.Conv2D(filters, 3, stride, padding=padding, use_bias=False, name=f"{name}_conv")(x)
    return layers.BatchNormalization(epsilon=epsilon, name=f"{name}_norm")(x)


def block(x, filters: int, stride: int, name: str, epsilon: float = 1e-5):
    shortcut = conv(x, filters, stride, f"{name}_shortcut")
    x = layers.ReLU()(conv(x, filters, stride, f"{name}_first"))
    return layers.ReLU()(layers.Add()([shortcut, conv(x, filters, 1, f"{name}_second", epsilon)]))


def build(epsilon: float = 1e-5) -> keras.Model:
    images = keras.Input((12, 10, 3))
    x = layers.ReLU()(conv(images, 8, 1, "stem"))
    x = block(block(x, 8, 1, "block1", epsilon), 16, 2, "block2")
    return keras.Model(images, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))
