"""The ops of a Keras layer's call: their lines, what they take, and where two ways to write a layer part."""

import inspect
from collections.abc import Callable
from pathlib import Path

import keras
import msgspec
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from keras_impl.experiment.call import recorded
from keras_impl.instruments import source
from parity.diagnose.experiment.first_difference import Difference, first_difference
from parity.diagnose.experiment.ops import Recording

X = np.sin(np.linspace(-2.0, 3.0, 48).reshape(2, 3, 8))


def line_of(function: Callable, text: str) -> str:
    """The end of the place of a line of a function's source."""
    lines, first = inspect.getsourcelines(function)
    return f"test_experiment_ops.py:{first + next(number for number, line in enumerate(lines) if text in line)}"


def parting(one: Callable, other: Callable) -> Difference | None:
    x = tf.constant(X)
    return first_difference(recorded(lambda: one(x)), recorded(lambda: other(x)))


def names(recording: Recording) -> list[str]:
    return [op.name for op in recording.calls.ops if op.kind != "moved"]


def by_hand(x):
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    return 0.5 * x * (1.0 + ops.tanh(inner))


def test_ops_are_recorded_in_order_with_their_lines():
    recording = recorded(lambda: by_hand(tf.constant(X)))
    assert names(recording) == ["Pow", "Mul", "AddV2", "Mul", "Mul", "Tanh", "AddV2", "Mul"]
    assert recording.calls.ops[1].line.endswith(line_of(by_hand, "0.044715"))
    assert recording.calls.ops[-1].line.endswith(line_of(by_hand, "return"))
    np.testing.assert_array_equal(recording.arrays[recording.calls.returned[0]], by_hand(tf.constant(X)).numpy())


def test_a_softmax_is_one_op():
    assert names(recorded(lambda: ops.softmax(tf.constant(X)))) == ["Softmax"]


def test_a_variable_that_is_read_is_given():
    layer = layers.Dense(4, dtype="float64")
    layer.build(X.shape)
    recording = recorded(lambda: layer(X))
    made = {number for op in recording.calls.ops for number in op.outputs}
    given = {number for op in recording.calls.ops for number in op.inputs if number not in made}
    assert {recording.arrays[number].shape for number in given} >= {(2, 3, 8), (8, 4), (4,)}
    assert "ReadVariableOp" not in names(recording)


class Attention(layers.Layer):
    """Attention of two heads, written out, with what may go wrong in it."""

    def __init__(self, mha, scale=0.5, axis=-1):
        super().__init__(dtype="float64")
        self.mha, self.scale, self.axis = mha, scale, axis

    def call(self, x):
        query, key, value = (self.heads(x, name) for name in ("query", "key", "value"))
        scores = ops.matmul(ops.swapaxes(query, 1, 2), ops.transpose(key, (0, 2, 3, 1)))
        scores = scores * self.scale
        weights = ops.softmax(scores, axis=self.axis)
        mixed = ops.reshape(ops.swapaxes(ops.matmul(weights, ops.swapaxes(value, 1, 2)), 1, 2), (-1, 3, 8))
        return mixed @ ops.reshape(self.mha.output_dense.kernel, (8, 8)) + self.mha.output_dense.bias

    def heads(self, x, name):
        dense = getattr(self.mha, f"_{name}_dense")
        return ops.reshape(x @ ops.reshape(dense.kernel, (8, 8)), (-1, 3, 2, 4)) + dense.bias


@pytest.fixture
def mha():
    keras.utils.set_random_seed(0)
    layer = layers.MultiHeadAttention(2, 4, dtype="float64")
    layer(X, X)
    return layer


def test_attention_written_out_is_no_difference(mha):
    assert parting(lambda x: mha(x, x), Attention(mha)) is None


def test_ways_to_normalise_are_no_difference_and_their_epsilon_is():
    def by_roots(x):
        mean = ops.mean(x, -1, keepdims=True)
        return (x - mean) / ops.sqrt(ops.mean(x * x, -1, keepdims=True) - mean * mean + 1e-3)

    assert parting(layers.LayerNormalization(dtype="float64"), by_roots) is None
    found = parting(layers.LayerNormalization(epsilon=1e-5, dtype="float64"), by_roots)
    assert found is not None and found.keras is not None and found.keras.line.endswith(line_of(by_roots, "return"))


def test_where_no_user_calls_it_a_librarys_line_is_told(monkeypatch):
    file = Path(msgspec.__file__).parent / "layers.py"
    library = {"x": tf.constant(X)}
    exec(compile("def call():\n    return x + 1.0\n", file, "exec"), library)
    monkeypatch.setattr(source._LINES, "line", lambda: "")
    assert [op.line for op in recorded(library["call"]).calls.ops] == ["msgspec/layers.py:2"]


def test_a_failing_replay_raises_its_own_error_and_ends_the_recording():
    with pytest.raises(ZeroDivisionError):
        recorded(lambda: 1 / 0)
    assert names(recorded(lambda: tf.constant(X) + 1.0)) == ["AddV2"]


def test_a_replay_may_return_the_numbers_of_a_tensor():
    recording = recorded(lambda: np.moveaxis(((by_hand(tf.constant(X)) * 1.0).numpy(), tf.constant(X) + 1.0)[0], -1, 0))
    assert recording.calls.returned == recording.calls.ops[-2].outputs  # the last but one
