"""What the doctor knows of a Keras model: names, lines, scopes, weights."""

import inspect

import keras
import pytest
import tensorflow as tf

from keras_impl.instruments import source
from keras_impl.instruments.build import Building, Scopes, named
from keras_impl.instruments.devices import pretend
from parity.trace.keys import MODEL

FILE = "tests/keras_impl/test_doctor_building.py"


def line(function: object, text: str) -> str:
    """Where a line stands in a function of this file."""
    lines, first = inspect.getsourcelines(function)
    return f"{FILE}:{first + next(number for number, each in enumerate(lines) if text in each)}"


class Helper:
    """A plain object: Keras does not look into it."""

    def __init__(self):
        self.layers = [keras.layers.Dense(2)]


class Model(keras.Model):
    """Layers in every place where they can hang."""

    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(3)
        self.blocks = [keras.layers.Dense(3), keras.Sequential([keras.layers.Dense(3, name="inner")])]
        self.heads = {"left": keras.layers.Dense(1)}
        self.attention = keras.layers.MultiHeadAttention(1, 2)
        self.ids = keras.layers.Embedding(10, 3)
        self.norm = keras.layers.BatchNormalization()
        self.drop = keras.layers.Dropout(0.5)
        self.shared = self.first
        self.helper = Helper()
        secret = keras.layers.Dense(3)
        self.function = lambda x: secret(x)
        self.scale = self.add_weight(shape=(3,), name="weight")

    def call(self, x):
        x = self.norm(self.drop(self.first(x) + self.ids(tf.zeros(8, tf.int32))))
        for block in self.blocks:
            x = block(x)
        x = self.attention(x[None], x[None])[0] * self.scale
        return self.heads["left"](self.function(x)) + self.helper.layers[0](x)


@pytest.fixture
def built():
    with pretend(2):
        with Building() as building:
            model = Model()
        yield model, building


@pytest.mark.slow
def test_names(built):
    model, _ = built
    model(tf.ones((8, 3)))
    attention = [f"attention.{name}" for name in ("_query_dense", "_key_dense", "_value_dense", "_softmax")]
    assert set(dict(named(model))) >= {
        *(MODEL, "first", "blocks.0", "blocks.1", "blocks.1.inner", "heads.left", "attention", "ids", "norm", "drop"),
        *("helper.layers[0]", "function.secret", *attention),
    }
    assert len({id(layer) for _, layer in named(model)}) == len(dict(named(model))) == 18


def test_functional_models():
    inputs = keras.Input((3,))
    inner = keras.Sequential([keras.layers.Dense(2, name="in")], name="block")
    model = keras.Model(inputs, keras.layers.Dense(1, name="out")(inner(inputs)))
    assert [name for name, _ in named(model)] == [MODEL, "block", "block.in", "out"]


def test_what_is_no_layer():
    helper = Helper()
    assert [name for name, _ in named(helper)] == ["layers.0"]
    assert [name for name, _ in named([helper.layers[0], keras.layers.Dense(1)])] == ["0", "1"]
    assert all(module.registered for module in Building().modules(helper))


def test_weights(built):
    model, building = built
    with tf.device("GPU:1"):
        model.heads["left"].build((None, 3))
    model(tf.ones((8, 3)))
    model.first.trainable = False
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    weights = building.weights(model, [optimizer])
    parameters = {each.name: each for each in weights if each.kind == "parameter"}
    assert (parameters["first.kernel"].module, parameters["first.kernel"].trained) == ("first", False)
    assert parameters["scale"].module == MODEL
    assert parameters["blocks.1.inner.bias"].tensor.origin == "parameter blocks.1.inner.bias"
    assert {each.name for each in weights if each.kind == "buffer"} == {"norm.moving_mean", "norm.moving_variance"}
    slots = [each for each in weights if each.kind == "optimizer_state"]
    assert sum(each.name == "blocks.0.kernel" for each in slots) == 2
    assert {each.name for each in weights if each.tensor.device == "GPU:1"} == {"heads.left.kernel", "heads.left.bias"}
    assert {each.tensor.device for each in slots} == {"GPU:0", "GPU:1"}
    assert parameters["first.kernel"].tensor.shape == [3, 3]


def test_weights_with_copies_on_each_device():
    with pretend(2):
        with tf.distribute.MirroredStrategy().scope():
            layer = keras.layers.Dense(1)
            layer.build((None, 2))
        assert {each.tensor.device for each in Building().weights(layer, [])} == {"GPU:0"}


def test_lines_of_optimizers():
    class Own(keras.optimizers.SGD):
        def __init__(self):
            super().__init__(0.1)

    model = keras.Sequential([keras.layers.Dense(1)])
    with Building() as building:
        own = Own()
        model.compile("adam")
    assert building.optimizers[own] == line(test_lines_of_optimizers, "own = Own()")
    assert building.optimizers[model.optimizer] == line(test_lines_of_optimizers, "model.compile")


def test_scopes_of_a_function_that_is_traced():
    @tf.function
    def step(x):
        with tf.device("/GPU:7"):
            return x * 2

    scopes = Scopes()
    with pretend(2), scopes.watched():
        step(tf.ones(2))
    assert [(move.device, move.source) for move in scopes.moves] == [("GPU:7", line(step.python_function, "GPU:7"))]


def test_a_whole_model_in_a_scope():
    with pretend(2), Building() as building, tf.device("GPU:1"):
        model = Model()
    building.modules(model)
    assert [(move.device, move.whole) for move in building.moves] == [("GPU:1", True)]


def test_what_frameworks_enter_is_no_move():
    with pretend(2), Building() as building, tf.distribute.MirroredStrategy().scope():
        keras.layers.Dense(1).build((None, 2))
    assert not building.moves


def test_the_line_in_a_converted_function():
    seen = []

    @tf.function
    def step(x):
        if tf.reduce_sum(x) > 0:
            seen.append((source.line(), source.direct()))
        return x

    step(tf.ones(2))
    expected = line(step.python_function, "seen.append")
    assert seen[0] == (expected, expected)


def test_who_calls():
    seen = []

    class Noting(keras.layers.Layer):
        def call(self, x):
            seen.append((source.line(), source.direct()))
            return x

    model = keras.Sequential([Noting()])
    model(tf.ones(1))
    assert seen[0][0] == seen[0][1] == line(Noting, "seen.append")
    assert not source.within("keras/src/trainers/")
    assert source.within("_pytest/")


def test_afterwards_all_is_as_it_was():
    before = keras.Layer.__new__, keras.optimizers.Optimizer.__init__, tf.device
    with Building():
        assert keras.Layer.__new__ is not before[0]
    assert (keras.Layer.__new__, keras.optimizers.Optimizer.__init__, tf.device) == before
