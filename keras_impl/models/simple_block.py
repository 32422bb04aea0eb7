"""A two-layer perceptron: Dense, ReLU, Dense."""

import keras
import tensorflow as tf

from keras_impl.models.block import Block


@keras.saving.register_keras_serializable("parity")
class SimpleBlock(keras.Model):
    """Dense, ReLU, Dense. Input: (batch, inputs); output: (batch, outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int, **kwargs):
        super().__init__(**kwargs)
        self.config = {"inputs": inputs, "hidden": hidden, "outputs": outputs}
        self.linear1 = keras.layers.Dense(hidden, name="linear1")
        self.relu = keras.layers.ReLU(name="relu")
        self.linear2 = keras.layers.Dense(outputs, name="linear2")

    def build(self, input_shape: tuple) -> None:
        self.linear1.build(input_shape)
        self.linear2.build((input_shape[0], self.linear1.units))

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.linear2(self.relu(self.linear1(x)))

    def blocks(self) -> list[Block]:
        """Return one block per layer."""
        return [Block([layer], layer) for layer in (self.linear1, self.relu, self.linear2)]

    def get_config(self) -> dict:
        return {**super().get_config(), **self.config}
