"""What kind of module each is, by the names that both sides have in common."""

from typing import Any

import keras
import tensorflow as tf

from keras_impl.harness.specimen import GELU
from keras_impl.models.transformer import MultiheadAttention
from keras_impl.strategies.tensor_parallel import ColumnParallel, RowParallel

# The first kind that fits counts.
KINDS: dict[type, str] = {
    keras.layers.Dense: "linear",
    ColumnParallel: "linear",
    RowParallel: "linear",
    keras.layers.Conv2D: "conv2d",
    keras.layers.Conv2DTranspose: "conv_transpose2d",
    keras.layers.BatchNormalization: "batch_norm",
    keras.layers.LayerNormalization: "layer_norm",
    keras.layers.GroupNormalization: "group_norm",
    keras.layers.Embedding: "embedding",
    MultiheadAttention: "attention",
    keras.layers.ReLU: "relu",
    GELU: "gelu",
    keras.layers.Softmax: "softmax",
    keras.layers.MaxPooling2D: "max_pool2d",
    keras.layers.Flatten: "flatten",
    keras.layers.Dropout: "dropout",
}


def kind(module: keras.Layer) -> str:
    """A kind of the table, or the name of the module's class."""
    return next((name for known, name in KINDS.items() if isinstance(module, known)), type(module).__name__)


def arguments(module: keras.Layer, given: tuple[Any, ...], leaf: bool) -> list[tf.Tensor]:
    """The tensors among the positional arguments of a call; of an attention query, key and value.

    Of a module with modules of its own the first one: the frameworks' customs differ in the others.
    """
    tensors = [argument for argument in given if tf.is_tensor(argument)]
    if kind(module) == "attention":
        return [tensors[i] for i in (0, 1, 1)]
    return tensors if leaf else tensors[:1]
