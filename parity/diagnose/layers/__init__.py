"""One formula for each kind of module: what it computes, and the conventions in which implementations may differ."""

from typing import Final

from parity.diagnose.formula import Formula
from parity.diagnose.layers.activations import GELU, RELU, SOFTMAX
from parity.diagnose.layers.attention import ATTENTION
from parity.diagnose.layers.batch_norm import BATCH_NORM
from parity.diagnose.layers.convolution import CONV2D, CONV_TRANSPOSE2D
from parity.diagnose.layers.dropout import DROPOUT
from parity.diagnose.layers.embedding import EMBEDDING
from parity.diagnose.layers.linear import LINEAR
from parity.diagnose.layers.norms import GROUP_NORM, LAYER_NORM
from parity.diagnose.layers.pooling import FLATTEN, MAX_POOL2D
from parity.diagnose.observation import Call

FORMULAS: Final[dict[str, Formula[Call]]] = {
    "linear": LINEAR,
    "conv2d": CONV2D,
    "conv_transpose2d": CONV_TRANSPOSE2D,
    "batch_norm": BATCH_NORM,
    "layer_norm": LAYER_NORM,
    "group_norm": GROUP_NORM,
    "embedding": EMBEDDING,
    "attention": ATTENTION,
    "relu": RELU,
    "gelu": GELU,
    "softmax": SOFTMAX,
    "max_pool2d": MAX_POOL2D,
    "flatten": FLATTEN,
    "dropout": DROPOUT,
}
