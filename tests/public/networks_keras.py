"""Keras's side of networks_torch.py, as keras.io writes them."""

import keras
from keras import layers, ops
from tutorials_keras import vae


def double(x, width):
    x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
    return layers.Conv2D(width, 3, padding="same", activation="relu")(x)


def unet() -> keras.Model:
    image = keras.Input((32, 32, 3))
    first = double(image, 8)
    second = double(layers.MaxPooling2D(2)(first), 16)
    x = double(layers.MaxPooling2D(2)(second), 32)
    x = layers.Conv2DTranspose(16, 2, strides=2)(x)
    x = double(layers.concatenate([x, second]), 16)
    x = layers.Conv2DTranspose(8, 2, strides=2)(x)
    x = double(layers.concatenate([x, first]), 8)
    return keras.Model(image, layers.Conv2D(3, 1)(x))


def wavenet_gated(width=16, dilations=(1, 2, 4)) -> keras.Model:
    sound = keras.Input((24, 1))
    x, skips = layers.Conv1D(width, 1)(sound), []
    for d in dilations:
        f = layers.Conv1D(width, 2, dilation_rate=d, padding="causal", activation="tanh")(x)
        g = layers.Conv1D(width, 2, dilation_rate=d, padding="causal", activation="sigmoid")(x)
        y = layers.Multiply()([f, g])
        skips.append(layers.Conv1D(width, 1)(y))
        x = layers.Add()([x, layers.Conv1D(width, 1)(y)])
    y = layers.ReLU()(layers.Add()(skips))
    return keras.Model(sound, layers.Conv1D(8, 1)(layers.Conv1D(width, 1, activation="relu")(y)))


def tnet(x, size):
    features = layers.Conv1D(16, 1, activation="relu")(layers.Conv1D(8, 1, activation="relu")(x))
    features = layers.GlobalMaxPooling1D()(features)
    features = layers.Dense(size * size)(layers.Dense(8, activation="relu")(features))
    matrix = layers.Reshape((size, size))(features) + ops.eye(size)
    return layers.Dot(axes=(2, 1))([x, matrix])


def pointnet() -> keras.Model:
    points = keras.Input((20, 3))
    x = layers.Conv1D(8, 1, activation="relu")(tnet(points, 3))
    x = layers.Conv1D(16, 1, activation="relu")(tnet(x, 8))
    return keras.Model(points, ops.log_softmax(layers.Dense(5)(layers.GlobalMaxPooling1D()(x))))


class DepthToSpace(layers.Layer):
    """A pixel shuffle by reshaping, as keras.io's super-resolution example has it."""

    def call(self, x):
        _n, h, w, c = x.shape
        x = ops.reshape(x, [-1, h, w, 2, 2, c // 4])
        return ops.reshape(ops.transpose(x, [0, 1, 3, 2, 4, 5]), [-1, 2 * h, 2 * w, c // 4])


def super_resolution() -> keras.Model:
    image = keras.Input((16, 16, 1))
    x = layers.Conv2D(16, 5, padding="same", activation="tanh")(image)
    x = layers.Conv2D(8, 3, padding="same", activation="tanh")(x)
    return keras.Model(image, DepthToSpace()(layers.Conv2D(4, 3, padding="same")(x)))


def mixer_block(x, patches, width):
    y = layers.Permute((2, 1))(layers.LayerNormalization(epsilon=1e-6)(x))
    y = layers.Dense(patches)(layers.Dense(24, activation="gelu")(y))
    x = layers.Add()([x, layers.Permute((2, 1))(y)])
    y = layers.Dense(40, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
    return layers.Add()([x, layers.Dense(width)(y)])


def mlp_mixer() -> keras.Model:
    image = keras.Input((16, 16, 3))
    x = layers.Reshape((16, 16))(layers.Conv2D(16, 4, 4)(image))
    x = mixer_block(mixer_block(x, 16, 16), 16, 16)
    return keras.Model(image, layers.Dense(5)(layers.GlobalAveragePooling1D()(x)))


def vae_padded() -> keras.Model:
    return vae()
