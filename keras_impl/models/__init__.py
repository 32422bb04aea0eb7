"""The five built-in models, and the function that builds them from a config."""

import keras

from keras_impl.models.linear_stack import LinearStack
from keras_impl.models.residual_block import ResidualBlock
from keras_impl.models.simple_block import SimpleBlock
from keras_impl.models.transformer import Transformer
from keras_impl.models.two_linear import TwoLinear
from parity.config import schema


def build(config: schema.Model) -> keras.Model:
    """Create the model that `config` describes; building it gives it Keras's default initialization."""
    match config:
        case schema.LinearStack():
            return LinearStack(config.layers, config.width)
        case schema.SimpleBlock():
            return SimpleBlock(config.inputs, config.hidden, config.outputs)
        case schema.TwoLinear():
            return TwoLinear(config.inputs, config.hidden, config.outputs)
        case schema.ResidualBlock():
            return ResidualBlock(config.in_channels, config.out_channels)
        case schema.Transformer():
            return Transformer(
                config.vocabulary,
                config.d_model,
                config.heads,
                config.encoder_layers,
                config.decoder_layers,
                config.feed_forward,
                config.dropout,
                config.causal,
            )
