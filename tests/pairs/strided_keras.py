"""The same, padded as PyTorch pads, or by "same", with the activations in the convolutions."""

from typing import Any

import keras
from keras import layers

CONVOLUTIONS: dict[int, Any] = {1: layers.Conv1D, 2: layers.Conv2D, 3: layers.Conv3D}
TRANSPOSED: dict[int, Any] = {1: layers.Conv1DTranspose, 2: layers.Conv2DTranspose, 3: layers.Conv3DTranspose}
PADDED: dict[int, Any] = {1: layers.ZeroPadding1D, 2: layers.ZeroPadding2D, 3: layers.ZeroPadding3D}
CROPPED: dict[int, Any] = {1: layers.Cropping1D, 2: layers.Cropping2D, 3: layers.Cropping3D}
POOLS: dict[int, Any] = {1: layers.MaxPooling1D, 2: layers.MaxPooling2D}


def down(axes: int, channels: int, padding: str) -> list[keras.Layer]:
    if padding == "same":
        return [CONVOLUTIONS[axes](channels, 3, strides=2, padding="same", activation="relu")]
    return [PADDED[axes](1), CONVOLUTIONS[axes](channels, 3, strides=2, activation="relu")]


def up(axes: int, channels: int, padding: str, activation: str | None = None) -> list[keras.Layer]:
    if padding == "same":
        return [TRANSPOSED[axes](channels, 3, strides=2, padding="same", activation=activation)]
    ends = (1, 0) if axes == 1 else ((1, 0),) * axes
    return [TRANSPOSED[axes](channels, 3, strides=2, activation=activation), CROPPED[axes](ends)]


def mean(axes: int) -> keras.Layer:
    return [layers.GlobalAveragePooling1D, layers.GlobalAveragePooling2D, layers.GlobalAveragePooling3D][axes - 1]()


def build(kind: str, axes: int, padding: str = "as in torch") -> keras.Model:
    parts: dict[str, list[keras.Layer]] = {
        "encoder": [*down(axes, 6, padding), *down(axes, 8, padding), mean(axes), layers.Dense(5)],
        "decoder": [*up(axes, 6, padding, "elu"), CONVOLUTIONS[axes](4, 1)],
        "both": [*down(axes, 6, padding), *up(axes, 4, padding)],
    }
    if kind == "pooled":
        pool = [PADDED[axes](1), POOLS[axes](3, 2)]  # with zeros, which count
        parts["pooled"] = [CONVOLUTIONS[axes](6, 3), *pool, mean(axes), layers.Dense(5)]
    return keras.Sequential(parts[kind])
