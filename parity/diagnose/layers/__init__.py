"""One formula for each kind of layer: what it computes, and the conventions in which implementations may differ."""

from typing import Final

from parity.diagnose.layers.activations import GELU, RELU, SOFTMAX
from parity.diagnose.layers.attention import ARGUMENTS, ATTENTION
from parity.diagnose.layers.batch_norm import BATCH_NORM, STATISTICS
from parity.diagnose.layers.call import Layer
from parity.diagnose.layers.convolution import CONV2D, CONV_TRANSPOSE2D
from parity.diagnose.layers.dropout import DROPOUT
from parity.diagnose.layers.linear import EMBEDDING, FLATTEN, LINEAR, MAX_POOL2D
from parity.diagnose.layers.norms import GROUP_NORM, LAYER_NORM

LAYERS: Final[dict[str, Layer]] = {
    "linear": Layer(LINEAR),
    "conv2d": Layer(CONV2D),
    "conv_transpose2d": Layer(CONV_TRANSPOSE2D),
    "batch_norm": Layer(BATCH_NORM, updated=STATISTICS),
    "layer_norm": Layer(LAYER_NORM),
    "group_norm": Layer(GROUP_NORM),
    "embedding": Layer(EMBEDDING),
    "attention": Layer(ATTENTION, arguments=ARGUMENTS),
    "relu": Layer(RELU),
    "gelu": Layer(GELU),
    "softmax": Layer(SOFTMAX),
    "max_pool2d": Layer(MAX_POOL2D),
    "flatten": Layer(FLATTEN),
    "dropout": Layer(DROPOUT),
}
