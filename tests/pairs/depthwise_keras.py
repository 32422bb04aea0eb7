"""The same: DepthwiseConv2D, and SeparableConv2D for the last two."""

import keras
from keras import layers


def build(capped: bool = True) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((9, 7, 4)),
            layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2),
            layers.ReLU(max_value=6.0 if capped else None),
            layers.Conv2D(10, 1),
            layers.ReLU(max_value=6.0),
            layers.SeparableConv2D(6, 5, padding="same"),
        ]
    )
