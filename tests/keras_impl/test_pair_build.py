"""How a user's model is built, given its inputs, and what is taken from what it returns."""

import dataclasses
import gc
import sys
import weakref
from typing import Any

import keras
import msgspec
import numpy as np
import pytest
import tensorflow as tf
from keras.src import backend
from pairs import HEAD, pair

from keras_impl.record.pair import build, first_call, outputs
from keras_impl.record.pair.first_call import ready
from parity.config.pair import Pair
from parity.core.errors import BackendError, UsageError
from parity.data.pairs import PairData

X = tf.constant([[1.0, 2.0]])
Y = tf.constant([[3.0, 4.0]])


def described(inputs: dict[str, str], **more: Any) -> Pair:
    """`inputs`: canonical names to this side's, "" for the same."""
    given = {name: {"shape": [1, 2], "keras": own} for name, own in inputs.items()}
    return msgspec.convert({"torch": "a:b", "keras": "users:build", "inputs": given, **more}, Pair)


def called(model: Any, values: dict[str, tf.Tensor], names: dict[str, str] | None = None) -> Any:
    return build.call(model, described({name: (names or {}).get(name, "") for name in values}), values)


def functional(structure: str) -> keras.Model:
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    inputs = {"dict": {"a": a, "b": b}, "list": [a, b], "single": a}[structure]
    return keras.Model(inputs, a - b if structure != "single" else a + 1)


class Two(keras.Model):
    def call(self, p, q, training=False):
        return p - q


class One(keras.Model):
    def call(self, inputs):
        return inputs["a"] - inputs["b"]


class Nested(keras.Model):
    def call(self, batch, scale):
        return batch["a"]["x"] - scale


class Keywords(keras.Model):
    def call(self, x, **kwargs):
        return x - kwargs["other"]


class Masked(keras.Model):
    def call(self, inputs, mask=None):
        return inputs - mask


class Switched(keras.Model):
    def call(self, inputs, training=None):
        return inputs - training


class Plain(tf.Module):
    def __call__(self, x, y, training=True):
        return x - y if training is False else x


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: functional("dict"), {"x": "a", "y": "b"}),
        (lambda: functional("list"), {"x": "a", "y": "b"}),
        (lambda: functional("list"), {}),
        (Two, {}),
        (Two, {"x": "p", "y": "q"}),
        (Two, {"x": "p"}),
        (One, {"x": "a", "y": "b"}),
        (Nested, {"x": "batch.a.x", "y": "scale"}),
        (Keywords, {"y": "other"}),
        (Plain, {}),
    ],
)
def test_inputs_reach_the_model(make, names):
    assert called(make(), {"x": X, "y": Y}, names).numpy().tolist() == [[-2.0, -2.0]]


@pytest.mark.parametrize(("model", "name"), [(Masked, "mask"), (Switched, "training")])
def test_an_input_may_have_the_name_of_what_keras_fills_in(model, name):
    assert called(model(), {"x": X, name: Y}).numpy().tolist() == [[-2.0, -2.0]]
    assert called(model(), {"x": X, "y": Y}, {"y": name}).numpy().tolist() == [[-2.0, -2.0]]


COUNTING = """
TOTAL = 0
class Counted(L.Layer):
    def build(self, shape):
        self.seen, self.calls, self.first = [], 0, True
        self.table = tf.Variable(tf.zeros(2))
        self.kernel = self.add_weight(shape=(shape[-1], 4))
        self.steps = self.add_weight(shape=(), trainable=False, initializer="zeros")
    def call(self, x):
        global TOTAL
        TOTAL += 1
        type(self).made = True
        self.calls, self.first = self.calls + 1, False
        self.seen.append(float(self.calls))
        self.table.assign_add(tf.ones(2))
        self.steps.assign_add(1.0)
        return ops.matmul(x, self.kernel)
class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.counted, self.norm, self.calls = Counted(name="counted"), L.GroupNormalization(-1), 0
    def call(self, x):
        self.calls += 1
        self.last = self.counted(x)
        return self.norm(self.last) * self.calls
"""
CREATING = COUNTING.replace(
    "self.calls += 1",
    """if self.calls == 0:
            self.late = L.Dense(4, name="late")
        self.calls += 1""",
).replace("self.norm(self.last)", "self.late(self.norm(self.last))")


@pytest.mark.parametrize("code", [COUNTING, pytest.param(CREATING, marks=pytest.mark.slow)])
def test_what_the_call_that_makes_weights_leaves_is_gone(tmp_path, code):
    made = pair(tmp_path, HEAD + code, "[inputs.x]\nshape = [2, 3]\n")
    data = PairData(made.case, [str(tmp_path)]).step(0)
    for _ in range(2):  # nor does one model leave anything to the next
        model = ready(made.case, "float32", [str(tmp_path)], data)
        layer, module = model.counted, sys.modules[type(model).__module__]
        assert len(model.weights) == (4 if code == COUNTING else 6) and model.norm.groups == 4
        assert (model.calls, layer.calls, layer.first, list(layer.seen)) == (0, 0, True, [])
        assert layer.steps.numpy() == 0 and not layer.table.numpy().any() and not hasattr(model, "last")
        if code == COUNTING:  # it was built from shapes: none of its code has run
            assert module.TOTAL == 0 and not hasattr(module.Counted, "made")
        model(data["x"])
        assert (model.calls, layer.calls, model.counted.steps.numpy()) == (1, 1, 1)


CONNECTED = """
class Block(L.Layer):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = L.LayerNormalization(), L.Dense(5), L.Dense(3)
    def call(self, x):
        NOTE
        return x + self.down(ops.tanh(self.up(self.norm(x))))
def build():
    x = inputs = keras.Input((3,))
    for _ in range(4):
        x = Block()(x)
    return keras.Model(inputs, L.Dropout(0.5)(x))
"""


@pytest.fixture
def large(monkeypatch):
    """Let a model of some layers be as one of many, which is not traced again."""
    monkeypatch.setattr(first_call, "MANY", 12)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("code", [COUNTING, CONNECTED.replace("NOTE", "")])
def test_what_is_kept_of_a_model_keeps_none_of_its_weights_alive(tmp_path, code):
    made = pair(tmp_path, HEAD + code, "[inputs.x]\nshape = [2, 3]\n")
    model = ready(made.case, "float32", [str(tmp_path)], PairData(made.case, [str(tmp_path)]).step(0))
    held = [weakref.ref(each) for each in model.weights]
    del model
    keras.utils.clear_session()
    gc.collect()
    assert held and not any(each() for each in held)


def test_what_a_first_call_has_shown_holds_until_a_file_changes(tmp_path, monkeypatch):
    made, asked, call = pair(tmp_path, HEAD + COUNTING, "[inputs.x]\nshape = [2, 3]\n"), [], first_call._called
    monkeypatch.setattr(first_call, "_called", lambda *given: (asked.append(given), call(*given))[1])
    data = PairData(made.case, [str(tmp_path)]).step(0)
    for _ in range(3):
        assert len(ready(made.case, "float32", [str(tmp_path)], data).weights) == 4
    assert len(asked) == 1
    (file,) = (each for each in tmp_path.glob("*.py") if COUNTING in each.read_text())
    file.write_text(file.read_text() + "# changed\n")
    ready(made.case, "float32", [str(tmp_path)], data)
    assert len(asked) == 2


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("note", "is_again"), [("", False), ("self.calls = getattr(self, 'calls', 0) + 1", True)])
def test_a_large_model_is_traced_once_unless_tracing_leaves_something(tmp_path, monkeypatch, note, is_again):
    traced, trace = [], backend.compute_output_spec
    monkeypatch.setattr(
        backend, "compute_output_spec", lambda *given, **named: (traced.append(1), trace(*given, **named))[1]
    )
    made = pair(tmp_path, HEAD + CONNECTED.replace("NOTE", note), "[inputs.x]\nshape = [2, 3]\n")
    data = PairData(made.case, [str(tmp_path)]).step(0)
    first = ready(made.case, "float32", [str(tmp_path)], data)
    assert (times := len(traced)) >= 4
    traced.clear()
    second = ready(made.case, "float32", [str(tmp_path)], data)
    assert bool(traced) == is_again
    assert [each.path for each in second.weights] == [each.path for each in first.weights]
    assert [getattr(each, "calls", 0) for each in second.layers] == [getattr(each, "calls", 0) for each in first.layers]
    traced.clear()
    ready(made.case, "float32", [str(tmp_path)], data)
    assert len(traced) == times * is_again
    second.set_weights(first.get_weights())
    assert np.array_equal(first(data["x"]), second(data["x"]))


def test_names_come_before_the_order():
    assert called(functional("list"), {"b": Y, "a": X}).numpy().tolist() == [[-2.0, -2.0]]
    assert called(Two(), {"q": Y, "p": X}).numpy().tolist() == [[-2.0, -2.0]]


def test_one_tensor_has_any_name():
    assert called(functional("single"), {"x": X}).numpy().tolist() == [[2.0, 3.0]]
    assert called(keras.Sequential([keras.layers.Rescaling(2.0)]), {"x": X}).numpy().tolist() == [[2.0, 4.0]]


@pytest.mark.parametrize(
    ("make", "names", "message"),
    [
        (lambda: functional("dict"), {"x": "a", "y": "bb"}, "has no input 'bb' (did you mean 'b'?)"),
        (lambda: functional("list"), {"x": "a", "y": "bb"}, "takes no input 'bb' (did you mean 'b'?)"),
        (lambda: functional("single"), {}, "received 2 inputs (x, y), expected 1"),
        (Two, {"x": "pp"}, "takes no input 'pp' (did you mean 'p'?)"),
        (lambda: keras.Sequential([keras.layers.Dense(2)]), {}, "received 2 inputs (x, y), expected 1"),
    ],
)
def test_a_name_that_is_not_taken(make, names, message):
    with pytest.raises(UsageError) as raised:
        called(make(), {"x": X, "y": Y}, names)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_input_that_is_missing():
    with pytest.raises(UsageError, match=r"needs the inputs \['b'\] too"):
        called(functional("dict"), {"a": X})


def test_training_is_told_to_layers_within():
    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.drop = keras.layers.Dropout(0.999)

        def call(self, x):
            return self.drop(x)

    x, pair = tf.ones((1, 64)), described({"x": ""})
    assert build.call(Outer(), pair, {"x": x}).numpy().sum() == 64
    assert build.call(Outer(), pair, {"x": x}, training=True).numpy().sum() != 64


BUILDS = {
    "def build(): return 3": (UsageError, "received int, expected a keras.Model"),
    "def build(k): pass": (UsageError, "missing a required argument: 'k'"),
    "def build(): raise KeyError('abc')": (BackendError, "cannot be built: KeyError: 'abc', at "),
    "def build(): raise ValueError('v: x=[[1 2\\n  3 4]], y')": (BackendError, "built: ValueError: v: x=[..., at "),
    "import nothing_of_this_name": (BackendError, "No module named 'nothing_of_this_name'"),
    "def other(): pass": (UsageError, "has no 'build'"),
}


@pytest.mark.parametrize("code", BUILDS)
def test_a_builder_that_fails(tmp_path, code):
    kind, message = BUILDS[code]
    made = pair(tmp_path, code, "[inputs.x]\nshape=[1]\n")
    with pytest.raises(kind) as raised:
        build.build(made.case.model, "float32", [str(tmp_path)])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_arguments_of_the_builder(tmp_path):
    code = "import keras\nclass build(keras.Sequential):\n    def __init__(self, k, j):\n        self.sum = k * j\n"
    toml = "kwargs = {k = 2, j = 3}\nkeras_kwargs = {j = 5}\n[inputs.x]\nshape=[1]\n"
    made = pair(tmp_path, code.replace("self.sum", "super().__init__(); self.total"), toml)
    assert build.build(made.case.model, "float32", [str(tmp_path)]).total == 10


def test_the_users_line_is_told(tmp_path):
    code = "import keras\nclass build(keras.Model):\n    def call(self, x):\n        return x @ x\n"
    made = pair(tmp_path, code, "[inputs.x]\nshape=[1, 2]\n")
    model = build.build(made.case.model, "float32", [str(tmp_path)])
    with pytest.raises(BackendError, match=r"cannot be called: InvalidArgumentError: .*\.py:4$"):
        build.call(model, made.case.model, {"x": X})
    assert keras.config.is_traceback_filtering_enabled()


def test_inputs_have_this_sides_axes_and_the_runs_precision():
    given = {"x": {"shape": [1, 2, 3], "keras_layout": "n c w -> n w c"}, "ids": {"shape": [2], "dtype": "int32"}}
    made = msgspec.convert({"torch": "a:b", "keras": "c:d", "inputs": given}, Pair)
    array = np.arange(6.0).reshape(1, 2, 3)
    found = build.tensors(made, {"x": array, "ids": np.int32([1, 2])})
    assert found["x"].numpy().tolist() == array.transpose(0, 2, 1).tolist()
    assert (found["x"].dtype, found["ids"].dtype) == (tf.float32, tf.int32)


@dataclasses.dataclass
class Result:
    logits: Any
    loss: Any = None


def test_every_tensor_and_number_in_order():
    returned = {"z": X, "a": [Y, None], "r": Result(X + 1), "n": 3}
    found = outputs.named(described({"x": ""}), returned)
    assert [name for name, _ in found] == ["(model)", "(model)#1", "(model)#2", "(model)#3"]
    assert [tensor.numpy().tolist() for _, tensor in found] == [[[1.0, 2.0]], [[3.0, 4.0]], [[2.0, 3.0]], 3]


@pytest.mark.parametrize("where", ["z", "l.0", "l.-2", "r.logits", "d.k"])
def test_an_output_is_found(where):
    returned = {"z": X, "l": [X, Y], "r": Result(X), "d": {"k": (X,)}}
    made = described({"x": ""}, outputs={"h": {"keras": where}})
    ((name, tensor),) = outputs.named(made, returned)
    assert (name, tensor.numpy().tolist()) == ("(model).h", [[1.0, 2.0]])


def test_without_a_key_an_output_is_the_one_of_its_name():
    made = described({"x": ""}, outputs={"z": {}, "d.k": {}})
    found = outputs.named(made, {"a": Y, "z": X, "d": {"k": Y}})
    assert [(name, tensor.numpy().tolist()) for name, tensor in found] == [
        ("(model).z", [[1.0, 2.0]]),
        ("(model).d.k", [[3.0, 4.0]]),
    ]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "outputs.h: keras = 'h': a dict has no 'h'; it has z, l, n"),
        ("y", "a dict has no 'y'"),
        ("zz", "(did you mean 'z'?)"),
        ("l.7", "a list of 2 has no '7'; it has 0, 1"),
        ("n", "'n' is None; let the model return it"),
        ("l", "is a list of 2, expected a tensor; name one of l.0, l.1"),
    ],
)
def test_an_output_that_is_not_there(where, message):
    made = described({"x": ""}, outputs={"h": {"keras": where}})
    with pytest.raises(UsageError) as raised:
        outputs.named(made, {"z": X, "l": [X, Y], "n": None})
    assert message in str(raised.value)


def test_a_model_that_returns_nothing():
    with pytest.raises(UsageError, match="returned NoneType, expected tensors"):
        outputs.named(described({"x": ""}), None)


def test_outputs_are_put_in_canonical_axes():
    x = tf.reshape(tf.range(6), (1, 2, 3))
    made = described({"x": ""}, outputs={"h": {"keras_layout": "n c w -> n w c"}})
    ((_, tensor),) = outputs.named(made, x)
    assert tensor.numpy().tolist() == x.numpy().transpose(0, 2, 1).tolist()
