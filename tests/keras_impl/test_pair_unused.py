"""Which of Keras's weights take part in nothing that is compared: only what is proven to."""

from pathlib import Path

import pytest
from pairs import pair
from slow import sampled

from keras_impl.record.pair import survey as surveyor
from parity.runtime import survey
from parity.runtime.job import SurveyJob
from parity.trace.mapping import PairContext

pytestmark = pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer:UserWarning")
X = "[inputs.x]\nshape = [4, 3]\n"
Y = X + '[outputs.y]\ntorch = "y"\nkeras = "y"\n'
IDLE = """
import keras
import tensorflow as tf
from keras import layers as L, ops

class build(keras.Model):
    def __init__(self):
        super().__init__()
        names = ["used", "head", "pooled", "stopped", "closed", "trained", "inferred"]
        self.of = {name: L.Dense(3, name=name) for name in names}
        self.normed, self.statistics = L.BatchNormalization(name="normed"), L.BatchNormalization(name="statistics")
        self.penal, self.regular = L.Dense(3, name="penal"), L.Dense(3, kernel_regularizer="l2", name="regular")
        self.of["head"].build((None, 3))
        self.frozen, self.teacher = (L.Dense(3, name=name, trainable=False) for name in ("frozen", "teacher"))
        self.teacher.build((None, 3))
    def call(self, x, training=False):
        of, x = self.of, self.frozen(x)
        y = of["used"](x) + ops.stop_gradient(of["stopped"](x)) + ops.relu(of["closed"](x) - 100)
        one, other = of["trained"](x), of["inferred"](x)
        y = y + (one if training else other) + self.statistics(x, training=training)
        self.add_loss(ops.mean(self.penal(x)))
        self.regular(x)
        return {"y": y, "pooled": ops.tanh(of["pooled"](x)), "normed": self.normed(x, training=training)}
"""
NO_GRADIENT = """
import keras
import tensorflow as tf

@tf.custom_gradient
def stepped(x):
    def gradient(upstream):
        raise LookupError("gradient registry has no entry for: Stepped")
    return 2 * x, gradient

class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.used, self.head = keras.layers.Dense(3), keras.layers.Dense(3)
        self.head.build((None, 3))
    def call(self, x):
        return stepped(self.used(x))
"""


TWO = """
import keras
from keras import layers as L, ops

class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.used, self.head, self.norm = L.Dense(3), L.Dense(3), L.BatchNormalization()
    def call(self, x, training=False):
        return RETURNED
"""
RETURNED = {
    "whole numbers": "self.used(x), ops.sum(ops.cast(self.head(x) > 1e9, 'int32'), -1)",
    "rounded": "self.used(x) + ops.round(self.head(x) / 1e9)",
    "noise": "self.used(x) + 0 * self.head(x) + keras.random.normal((3,))",
}
STILL = {
    "before a batch norm": ("self.norm(self.used(x), training=training) + self.head(x)", {"dense/bias"}),
    "before a ReLU": ("self.norm(ops.relu(self.used(x)), training=training)", set()),
    "before a norm that is not trained": ("self.norm(self.used(x), training=False)", set()),
    "behind a large value": ("1e6 * self.used(x) + self.head(x)", set()),
}


def told(tmp_path: Path, code: str, toml: str, asked: bool = True) -> survey.Survey:
    own = pair(tmp_path, code, toml)
    context = PairContext(search=[str(own.folder)], survey=str(own.torch))
    surveyor.survey(SurveyJob(case=own.case, folder=str(tmp_path), pair=context, needless=["alone"] if asked else None))
    return survey.read(tmp_path)


def unused(tmp_path: Path, code: str, toml: str, asked: bool = True) -> list[str]:
    return told(tmp_path, code, toml, asked).unused


def test_what_no_compared_output_depends_on(tmp_path):
    found = unused(tmp_path, IDLE, Y)
    assert {name.partition("/")[0] for name in found} == {"head", "pooled", "normed", "regular", "teacher"}
    assert {name for name in found if name.startswith("normed")} == {
        f"normed/{role}" for role in ("gamma", "beta", "moving_mean", "moving_variance")
    }
    assert [name for name in found if name.startswith("regular")] == ["regular/bias"]


@pytest.mark.slow
def test_without_named_outputs_all_of_them_are_compared(tmp_path):
    assert {name.partition("/")[0] for name in unused(tmp_path, IDLE, X)} == {"head", "regular", "teacher"}


def test_nothing_is_proven_where_there_is_no_gradient(tmp_path):
    assert unused(tmp_path, NO_GRADIENT, X) == []


@pytest.mark.parametrize("returned", RETURNED.values(), ids=RETURNED)
def test_nothing_is_proven_of_what_a_single_call_does_not_tell(tmp_path, returned):
    assert not [name for name in unused(tmp_path, TWO.replace("RETURNED", returned), X) if name.startswith("dense")]


@pytest.mark.parametrize(
    ("returned", "names"),
    sampled(
        (pytest.param(*row, id=name) for name, row in STILL.items()), "before a batch norm", "behind a large value"
    ),
)
def test_zeros_that_training_cannot_move(tmp_path, returned, names):
    assert set(told(tmp_path, TWO.replace("RETURNED", returned), X).still) == names


def test_it_is_found_only_if_it_is_asked_for(tmp_path):
    assert unused(tmp_path, IDLE, Y, asked=False) == []
