"""Branch parallelism: layers that do not need each other's results run on different devices at the same time.

A residual block's shortcut runs beside its main path; an attention layer's query, key and value projections run beside
each other. Everything else is on the first device.
"""

from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from keras_impl.models.residual_block import ResidualBlock
from keras_impl.strategies import single
from keras_impl.strategies.send_recv import under
from keras_impl.strategies.single import MakeModel, MakeOptimizer, Placed, evaluate, train

__all__ = ["evaluate", "place", "train"]


def place(make_model: MakeModel, make_optimizer: MakeOptimizer, devices: list[str], input_shape: tuple) -> Placed:
    """Build the model, with its branches' variables on further devices, and its optimizer."""

    def make_branched() -> keras.Model:
        model = make_model()
        for number, layer in branches(model):
            device = devices[number % len(devices)]
            layer.build = under(device, layer.build)
            layer.call = on(device, devices[0], layer.call)
        return model

    return single.place(make_branched, make_optimizer, devices, input_shape)


def branches(model: keras.Model) -> Iterator[tuple[int, keras.Layer]]:
    """Yield the layers that run beside others, each with the index of its branch."""
    if isinstance(model, ResidualBlock):
        yield 1, model.shortcut
    else:
        encoder, decoder = model.transformer.encoder.blocks, model.transformer.decoder.blocks
        crossed = [attention for layer in decoder for attention in (layer.self_attn, layer.multihead_attn)]
        for attention in (*(layer.self_attn for layer in encoder), *crossed):
            yield from enumerate((attention.query, attention.key, attention.value))


def on(device: str, home: str, function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Return `function` (of one tensor) so that it and its gradient run on `device`; the result is copied to `home`.

    TensorFlow runs backward ops on the device where the program stands, whatever device the forward pass ran on. A
    custom gradient can be told where to run.
    """

    def called(x: tf.Tensor, **kwargs) -> tf.Tensor:
        @tf.custom_gradient
        def placed(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = function(x, **kwargs)

            def backward(upstream: tf.Tensor, variables: tuple[tf.Variable, ...] = ()) -> tuple:
                with tf.device(device):
                    return tape.gradient(outputs, (x, list(variables)), upstream)

            return outputs, backward

        result = placed(tf.identity(x))
        with tf.device(home):
            return tf.identity(result)

    return under(device, called)
