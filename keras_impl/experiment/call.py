"""The call of a layer, taken apart: its tensors, and its ops in the order of their execution.

Ops come with the user's lines that call them: TensorFlow calls back after each op that it executes eagerly. Keras's own
functions are seen as the ops that they are made of.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_callbacks  # what sees every op has no public name

from keras_impl.instruments.origins import tensors
from keras_impl.instruments.source import nearest
from keras_impl.record.weights import array
from parity.core.arrays import Array
from parity.diagnose.experiment.ops import Kind, Recorder, Recording


def like(array: Array, tensor: Any) -> tf.Tensor:
    """Return a tensor of an array's numbers, of the dtype of another tensor."""
    return tf.constant(array, dtype=tensor.dtype)


MOVES = ("Identity", "Reshape", "Transpose", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "Snapshot")
SELECTS = ("Split", "SplitV", "StridedSlice", "Slice", "Unpack", "Pack", "ConcatV2")
# Whether an op moves its first input as a whole, or selects or joins parts; any other one computes.
KINDS: dict[str, Kind] = {**dict.fromkeys(MOVES, "moved"), **dict.fromkeys(SELECTS, "selected")}


def recorded(replay: Callable[[], Any]) -> Recording:
    """Return the ops of `replay`, which calls the module again in float64 and returns its outputs or their numbers."""
    recorder = Recorder(id, array)

    def see(kind: Any, inputs: tuple, attributes: Any, outputs: list, op_name: Any = None, graph: Any = None) -> None:
        """Record one op."""
        if graph is not None:
            return
        name = kind.decode() if isinstance(kind, bytes) else kind
        given, made = _numeric(inputs), _numeric(outputs)
        if given or not inputs:  # reading a variable takes a handle: what it returns is given, as an input is
            numbers = [recorder.number(tensor) for tensor in given]
            recorder.add(name, nearest(), numbers, made, KINDS.get(name, "computed") if given else "computed")

    op_callbacks.add_op_callback(see)
    try:
        outputs = replay()
    finally:
        op_callbacks.remove_op_callback(see)
    return recorder.recording(tensors(outputs))


def _numeric(values: Any) -> list[tf.Tensor]:
    """Return the tensors that hold numbers."""
    dtypes = [(each, each.dtype) for each in values if isinstance(each, tf.Tensor)]
    return [each for each, of in dtypes if of.is_floating or of.is_integer or of.is_bool or of.is_complex]
