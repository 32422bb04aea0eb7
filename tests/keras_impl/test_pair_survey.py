"""What a survey tells of a user's model."""

import keras
import numpy as np
import pytest
from pairs import Pair, pair

from keras_impl.record import tree as kinds_of
from keras_impl.record.pair.sources import repeated_draws
from parity.data.pairs import PairData
from parity.runtime import survey
from parity.runtime.construction import PART
from parity.trace import mapping
from parity.trace.mapping import Entry

pytestmark = pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer:UserWarning")

HEAD = "import keras\nimport tensorflow as tf\nfrom keras import layers as L, ops\n"
X = "[inputs.x]\nshape = [2, 4, 3]\n"
RECURRENT = """
def build():
    return keras.Sequential([
        L.Bidirectional(L.LSTM(3, return_sequences=True)), L.TimeDistributed(L.Dense(4)),
        L.RNN([L.GRUCell(3), L.LSTMCell(4)], return_sequences=True), L.RNN(L.GRUCell(3, reset_after=False)),
    ])
"""
OUTSIDE = """
def build():
    x = keras.Input((4, 3), name="x")
    places = keras.Sequential([L.Embedding(4, 3, name="places")], name="table")(ops.arange(4))
    L.Dense(3, name="idle")
    return keras.Model(x, L.Dense(3)(L.MultiHeadAttention(1, 3)(x, x) + places))
"""
MODULE = """
class Dense(tf.Module):
    def __init__(self):
        self.w, self.b = tf.Variable(tf.ones((3, 3))), tf.Variable(tf.zeros(3), trainable=False)
    def __call__(self, x):
        return x @ self.w + self.b

class build(tf.Module):
    def __init__(self):
        self.layers, self.last = [Dense(), Dense()], L.Dense(2)
    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.last(x)
"""


SURVEYED = {}


def surveyed(tmp_path, code, toml=X):
    """A pair and its survey, which is made once of the same code and file."""
    if (code, toml) not in SURVEYED:
        own = pair(tmp_path, HEAD + code, X)
        name = own.case.model.keras.partition(":")[0]
        made = pair(tmp_path, HEAD + code, toml.replace("PACKAGE", name))
        SURVEYED[code, toml] = made, made.survey()
    return SURVEYED[code, toml]


def kinds(survey):
    return {module.path: module.kind for module in survey.modules}


def test_layers_that_a_functional_model_has_only_the_results_of(tmp_path):
    _, told = surveyed(tmp_path, OUTSIDE)
    assert [each.partition(",")[0] for each in told.outside] == ["places (Embedding"]
    assert surveyed(tmp_path, RECURRENT)[1].outside == []


def test_a_recurrent_layer_has_the_weights_of_its_cell(tmp_path):
    _, told = surveyed(tmp_path, RECURRENT)
    found = kinds(told)
    assert found["bidirectional"] == "bidirectional"
    assert found["bidirectional/backward_lstm"] == "lstm"
    assert found["rnn_1"] == "gru"
    owners = {weight.name: weight.module for weight in told.weights}
    assert owners["bidirectional/forward_lstm/lstm_cell/kernel"] == "bidirectional/forward_lstm"
    assert owners["rnn/stacked_rnn_cells/gru_cell/bias"] == "rnn/stacked_rnn_cells/gru_cell"
    assert found["rnn/stacked_rnn_cells/gru_cell"] == "gru"
    facts = {module.path: module.facts for module in told.modules}
    assert (facts["rnn_1"]["activation"], facts["rnn_1"]["reset_after"]) == ("tanh", False)
    assert not any("cell" in path for path in told.called)
    assert [seen.key for seen in told.outputs if seen.module == "time_distributed/dense"][:2] == [
        "time_distributed/dense",
        "time_distributed/dense#1",
    ]


def test_a_module_of_tensorflow(tmp_path):
    _, told = surveyed(tmp_path, MODULE)
    assert kinds(told) == {"": "build", "last": "linear", "layers/0": "Dense", "layers/1": "Dense"}
    assert {weight.name: weight.trainable for weight in told.weights if weight.module == "layers/1"} == {
        "layers/1/b": False,
        "layers/1/w": True,
    }
    assert [seen.key for seen in told.outputs] == ["last", "(model)"]


def test_a_frozen_norm_has_no_statistics(tmp_path):
    _, told = surveyed(tmp_path, "def build(): return keras.Sequential([L.BatchNormalization(trainable=False)])\n")
    assert not any(weight.statistic or weight.trainable for weight in told.weights)


BUILT = """
class Table(L.Layer):
    def build(self, shape):
        self.table = self.add_weight(shape=(3,), trainable=False, name="table")
        self.table.assign([1.0, 2.0, 3.0])
        self.scale = self.add_weight(shape=(3,), name="scale")
    def call(self, x):
        return x * self.scale + self.table

def build():
    model = keras.Sequential([Table(name="free"), Table(name="frozen"), L.BatchNormalization(name="norm")])
    model.layers[1].trainable = False
    return model
"""


@pytest.mark.slow
def test_what_the_builder_gives_to_what_is_not_trained_is_kept(tmp_path):
    made, told = surveyed(tmp_path, BUILT)
    assert [weight.name for weight in told.weights if weight.fixed] == ["free/table", "frozen/table"]
    made.reference({"one": np.zeros(3)}, {})
    made.survey(mapping.Mapping(entries=[Entry(torch=["one"], keras=["free/table"])]))
    built = survey.built(made.folder / "keras")
    assert sorted(built) == ["free/table", "frozen/scale", "frozen/table"]
    assert built["free/table"].tolist() == [1.0, 2.0, 3.0], "torch's are loaded behind that"
    first, second = made.drawn(0, 1)
    assert first.keys() == built.keys()
    assert [name for name in first if not np.array_equal(first[name], second[name])] == ["frozen/scale"]
    assert [list(build) for build in made.drawn(7, tables=["free/table"])] == [["free/table"]]


def test_large_variables_are_drawn_in_part_unless_they_are_frozen(tmp_path):
    code = """
def build():
    model = keras.Sequential([L.Dense(30_000, name="frozen")])
    model.layers[0].trainable = False
    return model
"""
    made, _ = surveyed(tmp_path, code)
    frozen = survey.built(made.folder / "keras")["frozen/kernel"].reshape(-1)
    assert not np.array_equal(frozen[:-PART], frozen[PART:])
    with repeated_draws():
        trained, small, fixed = (keras.layers.Dense(size, trainable=size != 30_001) for size in (30_000, 300, 30_001))
        for layer in (trained, small, fixed):
            layer.build((1, 3))
    own = trained.kernel.numpy().reshape(-1)
    assert np.array_equal(own[:-PART], own[PART:]) and own[0] != own[1]
    assert len(np.unique(own)) > PART // 2 and len(np.unique(small.kernel)) == 900


CHOSEN = """
class build(keras.Model):
    def __init__(self):
        super().__init__()
        same = lambda shape, dtype=None: ops.ones(shape, dtype)
        kinds = {"seeded": keras.initializers.GlorotUniform(seed=3), "named": "he_normal", "function": same}
        kinds |= {"wide": keras.initializers.RandomUniform(-1, 1, seed=2), "same": keras.initializers.Constant(2.0)}
        self.own = [L.Dense(3, use_bias=False, name=name, kernel_initializer=kind) for name, kind in kinds.items()]
        self.usual = [L.Dense(3, name="dense"), L.LSTM(3, name="lstm"), L.Embedding(4, 3, name="table")]
        self.attention = L.MultiHeadAttention(1, 3)
        self.given = L.Embedding(4, 3, weights=[ops.ones((4, 3))], name="given")
        self.trainable = False
    def call(self, x):
        for layer in self.own:
            layer(x)
        x = self.attention(x, x)
        return self.usual[1](self.usual[0](x) + self.usual[2](ops.arange(4)) + self.given(ops.arange(4)))
"""


def test_what_layers_do_not_begin_with_by_default_is_chosen(tmp_path):
    weights = surveyed(tmp_path, CHOSEN)[1].weights
    assert {one.module for one in weights if one.chosen and "bias" not in one.role} == {
        *("named", "function", "wide", "same", "given")
    }


@pytest.mark.slow
def test_of_a_variable_that_is_loaded_in_part_the_rest_stays(tmp_path):
    made, _ = surveyed(tmp_path, BUILT)
    made.survey()  # another test has loaded values into it
    before = made.activations()["free"]
    made.reference({"one": np.float64([7, 8, 9])}, {})
    runs = {"free/table": [(0, 1), (2, 3)]}
    partial = mapping.Partial(entry=Entry(torch=["one"], keras=["free/table"]), runs=runs)
    made.survey(mapping.Mapping(entries=[], partial=[partial]))
    np.testing.assert_allclose(made.activations()["free"] - before, np.broadcast_to([6.0, 0.0, 6.0], before.shape))


def inputs(made: Pair) -> np.ndarray:
    return PairData(made.case, [str(made.folder)]).step(0)["x"]


def test_names_are_the_same_in_every_survey(tmp_path):
    made, told = surveyed(tmp_path, RECURRENT)
    keras.layers.Dense(1)
    assert made.survey() == told


def test_a_fused_activation_is_no_plain_layer():
    plain, fused = keras.layers.Dense(2), keras.layers.Dense(2, activation="relu")
    assert (kinds_of.kind(plain), kinds_of.computed(plain)) == ("linear", "linear")
    assert (kinds_of.kind(fused), kinds_of.computed(fused)) == ("linear", "Dense")
    gelu = keras.layers.Activation("gelu")
    assert (kinds_of.computed(gelu), kinds_of.facts(gelu)) == ("gelu", {"form": "exact"})
    assert kinds_of.computed(keras.layers.LSTM(2)) == "lstm"


def test_complex_numbers_are_pairs(tmp_path):
    made, told = surveyed(tmp_path, "def build(): return L.Lambda(lambda x: tf.complex(x, 2 * x))\n")
    assert told.outputs[-1].shape == (2, 4, 3, 2)
    np.testing.assert_allclose(made.activations()["(model)"], np.stack([inputs(made), 2 * inputs(made)], -1))


NAMED = """
class Gates(L.Layer):
    def __init__(self):
        super().__init__()
        self.gate, self._up, self.named = L.Dense(3), L.Dense(3), L.Dense(3, name="down")
    def build(self, shape):
        self.first = self.add_weight(shape=(3,))
        self.second = self.add_weight(shape=(3,), name="shift")
    def call(self, x):
        return self.named(self.gate(x) * self._up(x)) * self.first + self.second

class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [Gates(), keras.Sequential([L.Dense(3)])]
    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""


def test_attributes_are_told_where_keras_counts(tmp_path):
    _, told = surveyed(tmp_path, NAMED)
    assert {one.path: (one.label, one.chosen) for one in told.modules} == {
        "": ("", ""),
        "gates": ("blocks/0", "blocks/0"),
        "gates/dense": ("blocks/0/gate", "blocks/0/gate"),
        "gates/dense_1": ("blocks/0/up", "blocks/0/up"),
        "gates/down": ("blocks/0/down", "blocks/0/down"),
        "sequential": ("blocks/1", "blocks/1"),
        "sequential/dense_2": ("blocks/1/dense_2", "blocks/1"),
    }
    own = {one.name: one.role for one in told.weights if one.module == "gates"}
    assert own == {"gates/variable": "first", "gates/shift": "shift"}


REHEARSED = """
class build(keras.Model):
    def __init__(self, fails=False):
        super().__init__()
        self.a, self.drop, self.none, self.b = L.Dense(4), L.Dropout(0.5), L.Dropout(0.0), L.Dense(2)
        self.mean = self.add_weight(shape=(2,), initializer="zeros", trainable=False, name="mean")
        self.table = self.add_weight(shape=(2,), trainable=False, name="table")
        self.fails = fails
    def call(self, x, training=False):
        if training and self.fails:
            raise ValueError("not here")
        y = self.b(self.none(self.drop(self.a(x), training=training)))
        if training:
            y = keras.random.dropout(y, 0.5)
            self.mean.assign(ops.mean(y, (0, 1)))
        return y + self.table
"""


def test_what_training_would_draw_and_change(tmp_path):
    _, told = surveyed(tmp_path, REHEARSED)
    rehearsal = told.rehearsal
    assert rehearsal.masks == [2 * 4 * 4, 2 * 4 * 2]
    assert rehearsal.drawn == {"dense": 0, "dropout": 1, "dropout_1": 1, "dense_1": 1}
    assert rehearsal.changing == ["mean"]
    assert [one.name for one in told.weights if one.fixed] == ["mean", "table"]
    assert (rehearsal.behind("dropout", 32), rehearsal.behind("dropout", 16), rehearsal.behind("x", 32)) == (1, 0, None)


def test_a_model_that_cannot_be_rehearsed_is_surveyed_all_the_same(tmp_path):
    _, told = surveyed(tmp_path, REHEARSED.replace("fails=False", "fails=True"))
    assert told.rehearsal.drawn == {} and told.called


def test_where_the_user_makes_each_layer_and_the_optimizer(tmp_path):
    """Inner's build() is called by Keras, so that nothing is known of who called it; its cell is made by a library."""
    code = (
        "class Inner(L.Layer):\n    def build(self, shape):\n        self.dense = L.Dense(3)\n"
        "    def call(self, x):\n        return self.dense(x)\n"
        "def block(units):\n    return [L.Dense(units)] + [Inner() for _ in range(1)]\n"
        "def build():\n    return keras.Sequential([*block(3), L.LSTM(2)])\n"
        "def make():\n    return keras.optimizers.SGD(0.5)\n"
    )
    toml = f'{X}[train]\ntorch_optimizer = "x:y"\nkeras_optimizer = "PACKAGE:make"\n'
    _, told = surveyed(tmp_path, code, toml)
    lines = {module.path: [frame.line for frame in module.made.calls] for module in told.modules}
    first = HEAD.count("\n")
    assert lines == {
        "": [first + 9], "dense": [first + 7, first + 9], "inner": [first + 7, first + 9], "inner/dense_1": [first + 3],
        "lstm": [first + 9], "lstm/lstm_cell": [],
    }  # fmt: skip
    assert [frame.line for frame in told.optimizer.calls] == [first + 11]
    dense = told.made("dense")
    assert dense.positional[:2] == ["units", "activation"] and dense.source.endswith(f".py:{first + 7}")
