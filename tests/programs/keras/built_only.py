"""A model without a loop: two inputs, two outputs."""

import keras
from keras import layers


def build_right():
    ids = keras.Input((12,), dtype="int64", name="ids")
    extra = keras.Input((4,), name="extra")
    hidden = layers.GlobalAveragePooling1D()(layers.Embedding(100, 16)(ids))
    hidden = layers.Dropout(0.1)(layers.Concatenate()([hidden, layers.Dense(16)(extra)]))
    return keras.Model({"ids": ids, "extra": extra}, [layers.Dense(5)(hidden), layers.Dense(1)(hidden)])
