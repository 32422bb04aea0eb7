"""The same as a functional model with named inputs, and a dict of outputs."""

import keras
from keras import layers, ops


class MaskedAverage(layers.Layer):
    def __init__(self, masked: bool, **kwargs):
        super().__init__(**kwargs)
        self.masked = masked

    def call(self, x, mask_ids):
        kept = ops.cast(mask_ids, x.dtype)[..., None]
        if not self.masked:
            kept = ops.ones_like(kept)
        return ops.sum(x * kept, 1) / ops.maximum(ops.sum(kept, 1), 1)


def build(masked: bool = True) -> keras.Model:
    ids = keras.Input((7,), dtype="int32", name="token_ids")
    mask = keras.Input((7,), dtype="bool", name="padding_mask")
    numbers = keras.Input((3,), name="numbers")
    text = MaskedAverage(masked)(layers.Embedding(50, 8)(ids), mask)
    joined = layers.Concatenate()([text, layers.Dense(8, name="numeric_projection")(numbers)])
    hidden = layers.Dense(12, activation="tanh")(joined)
    score = layers.Reshape(())(layers.Dense(1, name="score")(hidden))
    outputs = {"score": score, "topic": layers.Dense(4, name="topic")(hidden)}
    return keras.Model({"ids": ids, "mask": mask, "numbers": numbers}, outputs)
