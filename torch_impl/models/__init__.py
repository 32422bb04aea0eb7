"""The five built-in models, and the function that builds them from a config."""

import msgspec
from torch import nn

from parity.config import schema
from torch_impl.models.perceptrons import LinearStack, SimpleBlock, TwoLinear
from torch_impl.models.residual_block import ResidualBlock
from torch_impl.models.transformer import Transformer

MODELS = {kind.__name__: kind for kind in (LinearStack, SimpleBlock, TwoLinear, ResidualBlock, Transformer)}


def build(config: schema.Model) -> nn.Module:
    """Build the model that `config` describes, with PyTorch's default initialization."""
    # Each has the name of its config, and takes the settings in their order.
    return MODELS[type(config).__name__](*msgspec.structs.astuple(config))
