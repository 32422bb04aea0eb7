"""A stack of Dense layers made in a loop, with nothing between them."""

import keras
import tensorflow as tf

from keras_impl.models.block import Block


@keras.saving.register_keras_serializable("parity")
class LinearStack(keras.Model):
    """A chain of `layers` layers Dense(width). Input and output: (batch, width)."""

    def __init__(self, layers: int, width: int, **kwargs):
        super().__init__(**kwargs)
        self.config = {"layers": layers, "width": width}
        # Not `self.layers`: keras.Model has a read-only property of that name.
        self.stack = [keras.layers.Dense(width, name=f"layers.{i}") for i in range(layers)]

    def build(self, input_shape: tuple) -> None:
        for layer in self.stack:
            layer.build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        for layer in self.stack:
            x = layer(x)
        return x

    def blocks(self) -> list[Block]:
        """Return one block per layer."""
        return [Block([layer], layer) for layer in self.stack]

    def get_config(self) -> dict:
        return {**super().get_config(), **self.config}
