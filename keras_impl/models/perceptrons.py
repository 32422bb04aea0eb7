"""The models made of Dense layers: a perceptron, its two halves as stages, and a stack made in a loop."""

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


@keras.saving.register_keras_serializable("parity")
class TwoLinear(keras.Model):
    """Dense and ReLU in `stage1`, Dense in `stage2`; the stages may be on different devices.

    Input: (batch, inputs); output: (batch, outputs).
    """

    def __init__(self, inputs: int, hidden: int, outputs: int, **kwargs):
        super().__init__(**kwargs)
        self.config = {"inputs": inputs, "hidden": hidden, "outputs": outputs}
        self.linear1 = keras.layers.Dense(hidden, name="linear1")
        self.linear2 = keras.layers.Dense(outputs, name="linear2")

    def build(self, input_shape: tuple) -> None:
        self.linear1.build(input_shape)
        self.linear2.build((input_shape[0], self.linear1.units))

    def stage1(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return tf.nn.relu(self.linear1(x))

    def stage2(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.linear2(x)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.stage2(self.stage1(x))

    def blocks(self) -> list[Block]:
        """Return one block per stage."""
        return [Block([self.linear1], self.stage1), Block([self.linear2], self.stage2)]

    def get_config(self) -> dict:
        return {**super().get_config(), **self.config}


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
