"""The same with channels last."""

import keras
from keras import layers


def build(pools: bool = False, activation: str = "elu") -> keras.Model:
    shrink = layers.MaxPooling3D((1, 2, 2)) if pools else layers.Conv3D(6, (1, 2, 2), strides=(1, 2, 2))
    return keras.Sequential(
        [
            keras.Input((4, 10, 12, 3)),
            layers.Conv3D(6, 3, padding="same", activation="relu"),
            shrink,
            layers.Conv3D(8, (2, 3, 3), strides=(2, 1, 1), activation=activation),
            layers.GlobalAveragePooling3D(),
            layers.Dense(4),
        ]
    )
