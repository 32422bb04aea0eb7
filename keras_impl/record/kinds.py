"""The kinds of layers, by names that both sides share, and the facts about a layer that matter for the mapping."""

from typing import Any

import keras
import tensorflow as tf

from keras_impl.models.transformer import MultiheadAttention
from keras_impl.record.specimen import GELU
from keras_impl.strategies.tensor_parallel import ColumnParallel, RowParallel
from parity.core.plain import setting

# The first class that matches counts.
KINDS: dict[type, str] = {
    keras.layers.Dense: "linear",
    ColumnParallel: "linear",
    RowParallel: "linear",
    keras.layers.EinsumDense: "einsum_dense",
    keras.layers.Conv1D: "conv1d",
    keras.layers.Conv2D: "conv2d",
    keras.layers.Conv3D: "conv3d",
    keras.layers.Conv1DTranspose: "conv_transpose1d",
    keras.layers.Conv2DTranspose: "conv_transpose2d",
    keras.layers.Conv3DTranspose: "conv_transpose3d",
    keras.layers.DepthwiseConv1D: "depthwise_conv1d",
    keras.layers.DepthwiseConv2D: "depthwise_conv2d",
    keras.layers.SeparableConv1D: "separable_conv",
    keras.layers.SeparableConv2D: "separable_conv",
    keras.layers.BatchNormalization: "batch_norm",
    keras.layers.LayerNormalization: "layer_norm",
    keras.layers.GroupNormalization: "group_norm",
    keras.layers.RMSNormalization: "rms_norm",
    keras.layers.ReversibleEmbedding: "reversible_embedding",
    keras.layers.Embedding: "embedding",
    keras.layers.LSTM: "lstm",
    keras.layers.GRU: "gru",
    keras.layers.SimpleRNN: "rnn",
    keras.layers.LSTMCell: "lstm",
    keras.layers.GRUCell: "gru",
    keras.layers.SimpleRNNCell: "rnn",
    keras.layers.Bidirectional: "bidirectional",
    MultiheadAttention: "attention",
    keras.layers.MultiHeadAttention: "attention",
    keras.layers.GroupQueryAttention: "attention",
    keras.layers.ReLU: "relu",
    keras.layers.PReLU: "prelu",
    GELU: "gelu",
    keras.layers.Softmax: "softmax",
    keras.layers.MaxPooling1D: "max_pool1d",
    keras.layers.MaxPooling2D: "max_pool2d",
    keras.layers.MaxPooling3D: "max_pool3d",
    keras.layers.AveragePooling1D: "average_pool1d",
    keras.layers.AveragePooling2D: "average_pool2d",
    keras.layers.AveragePooling3D: "average_pool3d",
    keras.layers.Flatten: "flatten",
    keras.layers.Dropout: "dropout",
}
# For layers without a kind by class: by a part of the class's name, and by the function that the layer applies.
NAMES = {"RMSNorm": "rms_norm", "LlamaLayerNorm": "rms_norm", "ReversibleEmbedding": "reversible_embedding"}
FUNCTIONS = {
    keras.activations.relu: "relu",
    keras.activations.gelu: "gelu",
    keras.activations.silu: "silu",
    keras.activations.softmax: "softmax",
}
# The attributes that hold each fact, in Keras or in KerasHub.
FACTS = {
    "groups": ("groups",),
    "strides": ("strides",),
    "padding": ("padding",),
    "dilation": ("dilation_rate",),
    "depth_multiplier": ("depth_multiplier",),
    "equation": ("equation",),
    "heads": ("num_heads", "num_query_heads"),
    "kv_heads": ("num_key_value_heads",),
    "reset_after": ("reset_after",),
    "epsilon": ("epsilon",),
    "rate": ("rate",),
    "data_format": ("data_format",),
    "axis": ("axis",),
}


def kind(module: Any) -> str:
    """Return a kind from the tables, or else the name of the layer's class."""
    if kind_name := next((name for candidate, name in KINDS.items() if isinstance(module, candidate)), ""):
        return kind_name
    if isinstance(module, keras.layers.Activation) and module.activation in FUNCTIONS:
        return FUNCTIONS[module.activation]
    if isinstance(module, keras.layers.RNN) and (cell_kind := kind(module.cell)) in ("lstm", "gru", "rnn"):
        return cell_kind
    name = type(module).__name__
    return next((candidate for part, candidate in NAMES.items() if part in name), name)


def facts(module: Any) -> dict[str, Any]:
    """Return what the mapping may need to know about a layer besides its kind."""
    result = {}
    if type(module) is keras.layers.RNN:
        return facts(module.cell)
    for fact, attributes in FACTS.items():
        value = setting(module, attributes)
        if isinstance(value, (bool, int, float, str)) or (
            isinstance(value, list) and all(isinstance(entry, int) for entry in value)
        ):
            result[fact] = value
    activation = getattr(module, "activation", None)
    if kind(module) == "gelu":
        result["form"] = "exact"
    elif callable(activation) and activation is not keras.activations.linear:
        result["activation"] = setting(activation, ["__name__"]) or type(activation).__name__
    return result


def computed(module: Any) -> str:
    """Return the kind whose formula explains a layer's output.

    A layer with a fused activation computes more than its kind, so it gets its class name instead.
    """
    name = kind(module)
    fused = facts(module).get("activation")
    return type(module).__name__ if fused and name not in (*FUNCTIONS.values(), "lstm", "gru", "rnn") else name


def arguments(module: keras.Layer, given: tuple[Any, ...], leaf: bool) -> list[tf.Tensor]:
    """Return the tensors among the positional arguments of a call.

    For attention: query, key and value. For a layer with sublayers: the first tensor only, since the frameworks pass
    different further arguments.
    """
    tensors = [argument for argument in given if tf.is_tensor(argument)]
    if kind(module) == "attention":
        return [tensors[i] for i in (0, 1, 1)]
    return tensors if leaf else tensors[:1]
