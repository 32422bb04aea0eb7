"""The settings of the operations in functional models' graphs: found with their lines, changed, and put back."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_impl.experiment import operations
from keras_impl.instruments import source
from keras_impl.record import precision
from keras_impl.record.pair.sources import noted_at_creation
from parity.diagnose.experiment.knobs import INVERTED, Knob
from parity.diagnose.experiment.operations import FIRST, LEFT_OUT, SECOND

X = np.sin(np.linspace(-2.0, 3.0, 24).reshape(2, 3, 4))
READ = {"negative_slope", "axis"}
HERE = Path(__file__).name
MASK = np.array([[0.0, -1e9], [0.0, 0.0]])


def line_of(text: str) -> str:
    """Return "file:line" of the first line of this file that contains a text."""
    lines = Path(__file__).read_text().splitlines()
    return f"{HERE}:{next(number for number, line in enumerate(lines, 1) if text in line)}"


class Made:
    """A functional model that `build` makes of a tensor like X, with what can be changed in its graph."""

    def __init__(self, build, shape=X.shape[1:]):
        with precision.policy("float64"), noted_at_creation(source.nearest) as lines:
            inputs = keras.Input(shape)
            self.model = keras.Model(inputs, build(inputs))
        self.lines = lines

    def knobs(self, **wanted: object) -> list[Knob]:
        found = operations.graph_settings([self.model], self.lines, READ, [])
        return [knob for knob in found if all(getattr(knob, key) == value for key, value in wanted.items())]

    def under(self, new: object, x: np.ndarray = X, **wanted: object) -> np.ndarray:
        """Return what the model returns while its only setting of this kind is changed; it is put back."""
        before = self.model(x).numpy()
        (knob,) = self.knobs(**wanted)
        with knob.changed(new):
            returned = self.model(x).numpy()
        assert np.array_equal(self.model(x).numpy(), before)
        return returned


@pytest.mark.parametrize(
    ("sign", "expected"), [("-", X - np.abs(X)), ("*", X * np.abs(X)), (FIRST, X), (SECOND, np.abs(X))]
)
def test_an_operator(sign, expected):
    assert np.allclose(Made(lambda x: x + ops.abs(x)).under(sign, kind="operator"), expected)


def test_what_keeps_the_shape_can_be_left_out():
    made = Made(lambda x: ops.clip(x, -0.1, 0.1))
    assert np.allclose(made.under(LEFT_OUT, kind="function"), X)
    (knob,) = Made(lambda x: ops.max(x, axis=1)).knobs(kind="function")
    assert LEFT_OUT not in knob.words and {"mean", "sum"} <= {*knob.words} <= {*dir(ops)}


def test_a_mask_that_is_added():
    x = np.ones((1, 2, 2))
    made = Made(lambda x: x + MASK, x.shape[1:])
    assert np.allclose(made.under(INVERTED, x, name="mask")[0] < 0, MASK == 0)


def test_what_one_line_makes_several_times_is_changed_together():
    def build(x):
        for _ in range(2):
            x = ops.leaky_relu(x, 0.3)  # twice
        return ops.leaky_relu(x, 0.3)  # once

    made = Made(build)
    twice, once = made.knobs(name="negative_slope")
    assert [Path(twice.source).name, Path(once.source).name] == [line_of("# twice"), line_of("# once")]
    with twice.changed(0.0):
        assert np.allclose(made.model(X).numpy(), np.maximum(X, 0))


def test_layers_have_settings_of_their_own_and_are_left_to_them():
    assert Made(lambda x: layers.Dense(2)(layers.ReLU()(x))).knobs() == []


def test_while_an_operation_runs_the_line_that_made_it_is_the_users():
    made = Made(lambda x: layers.Dense(2)(ops.abs(x)))  # made
    seen: list[str] = []
    for operation in made.model.operations[1:]:
        operation.call = lambda x, call=operation.call: (seen.append(source._LINES._standing[-1]), call(x))[1]
    with operations.located([made.model], made.lines):
        made.model(X)
    assert [Path(line).name for line in seen] == [line_of("# made")] * 2
    assert not source._LINES._standing
