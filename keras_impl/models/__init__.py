"""The five built-in models, and the function that builds them from a config."""

import keras
import msgspec

from keras_impl.models.perceptrons import LinearStack, SimpleBlock, TwoLinear
from keras_impl.models.residual_block import ResidualBlock
from keras_impl.models.transformer import Transformer
from parity.config import schema

MODELS = {kind.__name__: kind for kind in (LinearStack, SimpleBlock, TwoLinear, ResidualBlock, Transformer)}


def build(config: schema.Model) -> keras.Model:
    """Create the model that `config` describes; building it gives it Keras's default initialization."""
    # Each has the name of its config, and takes the settings in their order.
    return MODELS[type(config).__name__](*msgspec.structs.astuple(config))
