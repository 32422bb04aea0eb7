"""The five built-in models, and the function that builds them from a config."""

import msgspec
from torch import nn

from parity.config import schema
from torch_impl.models.perceptrons import LinearStack, SimpleBlock, TwoLinear
from torch_impl.models.residual_block import ResidualBlock
from torch_impl.models.transformer import Transformer

MODELS = {
    schema.LinearStack: LinearStack,
    schema.SimpleBlock: SimpleBlock,
    schema.TwoLinear: TwoLinear,
    schema.ResidualBlock: ResidualBlock,
    schema.Transformer: Transformer,
}


def build(config: schema.Model) -> nn.Module:
    """Build the model that `config` describes, with PyTorch's default initialization."""
    return MODELS[type(config)](*msgspec.structs.astuple(config))  # each takes its settings in their order
