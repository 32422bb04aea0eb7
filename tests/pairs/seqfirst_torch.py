"""torch's own encoder, sequence first and post-norm, as its layers are by default."""

from torch import nn


def build(dim: int, heads: int, layers: int = 2) -> nn.Module:
    layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0)
    return nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
