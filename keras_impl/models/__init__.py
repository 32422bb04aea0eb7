"""The five built-in models, and the function that builds them from a config."""

import keras
import msgspec

from keras_impl.models.perceptrons import LinearStack, SimpleBlock, TwoLinear
from keras_impl.models.residual_block import ResidualBlock
from keras_impl.models.transformer import Transformer
from parity.config import schema

MODELS = {
    schema.LinearStack: LinearStack,
    schema.SimpleBlock: SimpleBlock,
    schema.TwoLinear: TwoLinear,
    schema.ResidualBlock: ResidualBlock,
    schema.Transformer: Transformer,
}


def build(config: schema.Model) -> keras.Model:
    """Create the model that `config` describes; building it gives it Keras's default initialization."""
    return MODELS[type(config)](*msgspec.structs.astuple(config))  # each takes its settings in their order
