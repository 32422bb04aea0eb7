"""Training scripts in Keras: a loop run step by step is the same as run whole; `fit` is left with its data's form."""

import runpy
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_impl.instruments.script_callbacks import Callbacks
from keras_impl.instruments.script_copies import copies
from keras_impl.instruments.script_data import fits, like
from keras_impl.record import calls
from keras_impl.record.pair.script import Script
from parity.core.errors import UsageError
from parity.pairs.script_records import VALUES

LOOP = """
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(3)
from keras import layers
model = keras.Sequential([keras.Input((4,)), layers.Dense(8), layers.BatchNormalization(), layers.Dense(3)])
optimizer = keras.optimizers.Adam(0.01)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
x, y = np.random.randn(18, 4).astype("float32"), np.random.randint(0, 3, 18)
model(x)
@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = LOSS
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
for epoch in range(2):
    for batch in BATCHES:
        loss = train_step(*batch)
    model(x, training=False)
"""
LOSS = "loss_of(y, model(x, training=True))"
DATASET = "tf.data.Dataset.from_tensor_slices((x, y)).batch(6)"
SLICES = "[(x[i:i + 6], y[i:i + 6]) for i in range(0, 18, 6)]"
OF_KERAS = "tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), True))"
STEP, CALL = "        loss = train_step(*batch)\n", "        model(batch[0])\n"
WRITTEN_OUT = "tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True)))"


def _script(folder: Path, text: str) -> Script:
    (folder / "train.py").write_text(text)
    return Script("train.py", [str(folder)])


def _loop(loss: str = LOSS, batches: str = DATASET) -> str:
    return LOOP.replace("LOSS", loss).replace("BATCHES", batches)


def test_a_loop_step_by_step_is_the_same_as_whole(tmp_path: Path):
    script = _script(tmp_path, _loop())
    whole = runpy.run_path(str(tmp_path / "train.py"))
    parts = [(whole["x"][i : i + 6], whole["y"][i : i + 6]) for i in range(0, 18, 6)] * 2
    model = script.build()
    optimizer = script.optimizer()
    for x, _ in parts:
        loss = script.step(model, optimizer, {"x": tf.constant(x)})
    script.close()
    np.testing.assert_allclose(loss, whole["loss"], rtol=1e-5)
    for own, other in zip(model.variables, whole["model"].variables, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)  # op by op, and as a graph


@pytest.mark.parametrize(
    ("loss", "batches"),
    [
        (LOSS, DATASET),
        (WRITTEN_OUT, DATASET),
        (WRITTEN_OUT, SLICES),
        (OF_KERAS, SLICES),
    ],
    ids=["dataset", "written out", "tf.function", "function of keras.losses"],
)  # fmt: skip
def test_a_loop_is_given_other_batches(loss: str, batches: str, tmp_path: Path):
    x, y = np.ones((2, 4), np.float32), np.array([0, 2])
    np.savez(tmp_path / VALUES, **{"x@0": x, "target@0": y, "x@1": x, "target@1": y})
    script = _script(tmp_path, _loop(loss, batches))
    model = script.build()
    expected = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
    computed = script.step(model, script.optimizer(), {"x": tf.constant(x), "target": tf.constant(y)})
    np.testing.assert_allclose(computed, np.mean(expected), rtol=1e-5)
    script.step(model, script.optimizer(), {"x": tf.constant(x), "target": tf.constant(y)})
    script.close()


def test_a_validation_within_the_loop_keeps_its_own_targets(tmp_path: Path):
    x, y = np.ones((2, 4), np.float32), np.array([0, 2])
    np.savez(
        tmp_path / VALUES, **{f"{name}@{step}": each for step in range(3) for name, each in (("x", x), ("target", y))}
    )
    validation = "        for vx, vy in tf.data.Dataset.from_tensor_slices((x[:5], y[:5])).batch(5):\n"
    validation += "            assert (vy == y[:5]).numpy().all() and model(vx, training=False).shape[0] == 5\n"
    script = _script(tmp_path, _loop(WRITTEN_OUT).replace("    model(x, training=False)", validation))
    model, optimizer = script.build(), script.optimizer()
    for _ in range(3):
        assert script.step(model, optimizer, {"x": tf.constant(x), "target": tf.constant(y)}) is not None
    script.close()


def test_a_target_that_is_not_seen(tmp_path: Path):
    np.savez(tmp_path / VALUES, **{"x@0": np.ones((2, 4), np.float32), "target@0": np.array([0, 2])})
    script = _script(tmp_path, _loop(WRITTEN_OUT, SLICES).replace("@tf.function", ""))
    model = script.build()
    with pytest.raises(UsageError, match=r"train\.py: where the target of its loss comes from is not seen"):
        script.step(model, script.optimizer(), {"x": tf.zeros((6, 4)), "target": tf.constant([0, 2])})
    script.close()


def test_evaluations_are_not_observed_and_a_suspended_tape_does_not_record(tmp_path: Path):
    script = _script(tmp_path, _loop().replace("batch(6)", "batch(18)"))
    model, seen = script.build(), list[bool]()
    outside = tf.Variable(1.0)
    with calls.observed({"": model}, lambda call: seen.append(call.kwargs.get("training")), lambda *_: None):
        with tf.GradientTape() as tape:
            doubled = outside * 2
        assert tape.gradient(doubled, outside) == 2
        for _ in range(2):
            script.step(model, script.optimizer(), {"x": tf.zeros((18, 4))})
    script.close()
    assert seen == [True, True]


@pytest.mark.parametrize(("order", "begins"), [((STEP, CALL), None), ((CALL, STEP), 1)])
def test_a_step_begins_with_no_call_that_makes_the_model(order: tuple[str, str], begins: int | None, tmp_path: Path):
    """A call outside of a tape may be the beginning of the next step; in the first step it is that of data, too."""
    text = _loop().replace("\nmodel(x)\n", "\n").replace("    model(x, training=False)\n", "")
    script = _script(tmp_path, text.replace(STEP, "".join(order)).replace("@tf.function", ""))
    script.build()
    early = script.early()
    script.close()
    assert (early and early.call) == begins


def test_a_step_that_was_left_in_its_backward_pass_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class LeftError(BaseException):
        pass

    losses = []

    def leave(_: tf.GradientTape, loss: tf.Tensor, sources: list, *__: object, **___: object) -> None:
        losses.append((float(loss), sources[0] is model.trainable_variables[0]))
        raise LeftError

    script = _script(tmp_path, _loop())
    model = script.build()
    monkeypatch.setattr(tf.GradientTape, "gradient", leave)
    for factor in (1.0, 1.0, 2.0):
        model.layers[-1].kernel.assign(model.layers[-1].kernel * factor)
        with pytest.raises(LeftError):
            script.step(model, script.optimizer(), {"x": tf.ones((6, 4))})
    (first, _), (second, is_own), (third, _) = losses
    assert first == second != third and is_own


FIT = """
import keras, numpy as np
x, y = np.random.randn(18, 4).astype("float32"), np.eye(3)[np.arange(18) % 3]
inputs = keras.Input((4,), name="rows")
model = keras.Model({"rows": inputs}, keras.layers.Dense(3)(inputs))
optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1)
optimizer.exclude_from_weight_decay(var_names=["bias"])
model.compile(optimizer, keras.losses.CategoricalCrossentropy(from_logits=True))
weights, callbacks = {0: 1.0, 1: 2.0, 2: 1.0}, [keras.callbacks.History()]
model.fit({"rows": x}, y, 6, sample_weight=np.ones(18), class_weight=weights, callbacks=callbacks)
"""


def test_fit_is_left_with_the_form_of_its_data(tmp_path: Path):
    script = _script(tmp_path, FIT)
    model = script.build()
    fit = fits[model]
    assert not script.is_loop and list(fit.inputs) == ["rows"] and fit.inputs["rows"].shape == (6, 4)
    assert fit.y.shape == (6, 3) and fit.sample_weight.shape == (6,) and fit.callbacks[0].history == {}
    assert Callbacks(fit, model).params == {"verbose": 0, "epochs": 1, "steps": 3}
    assert fit.structured(["given"]) == {"rows": "given"} and fit.class_weight[1] == 2.0
    first, again = script.optimizer(), script.optimizer()
    assert first is model.optimizer is not again
    first.build(model.trainable_variables)
    again.build(model.trainable_variables)
    decays = [[each._use_weight_decay(variable) for variable in model.trainable_variables] for each in (first, again)]
    assert decays == [[True, False]] * 2


UNFREEZE = """
class Unfreeze(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.layers[-1].trainable = epoch != 1
        REMAKES
"""


@pytest.mark.parametrize(
    ("remakes", "eagerly", "trained"),
    [("", False, [2, 2, 2]), ("", True, [2, 0, 2]), ("self.model.make_train_function(force=True)", False, [2, 0, 2])],
    ids=["graph", "eagerly", "another graph"],
)
def test_a_step_trains_what_was_trainable_when_its_graph_was_made(
    remakes: str, eagerly: bool, trained: list[int], tmp_path: Path
):
    """Which callbacks change later: fit keeps its graph, and the callbacks read what they have set."""
    text = FIT.replace("[keras.callbacks.History()]\nmodel", f"[Unfreeze()]\nmodel.run_eagerly = {eagerly}\nmodel")
    script = _script(tmp_path, text.replace("\nx, y", UNFREEZE.replace("REMAKES", remakes) + "x, y"))
    model = script.build()
    callbacks, seen = Callbacks(fits[model], model), list[int]()
    for step in range(9):
        callbacks.around(lambda: seen.append(len(model.trainable_variables)))
        assert model.layers[-1].trainable == (step not in (3, 4, 5))
    assert seen[::3] == trained


IMAGES = np.arange(8.0).reshape(2, 2, 2, 1)


@pytest.mark.parametrize(
    ("array", "own", "expected"),
    [
        (np.array([2, 0]), np.zeros(5, np.int32), np.array([2, 0], np.int32)),
        (np.array([2, 0]), np.zeros((5, 1)), np.array([[2.0], [0.0]])),
        (np.array([2, 0]), np.zeros((5, 3), np.float32), np.eye(3)[[2, 0]]),
        (np.eye(3)[[2, 0]], np.zeros(5, np.int64), np.array([2, 0])),
        (np.array([1, 2, 0, 1]), np.zeros((5, 2), np.int64), np.array([[1, 2], [0, 1]])),
        (np.eye(3)[[[2, 0], [1, 1]]].transpose(0, 2, 1), np.zeros((5, 2), np.int64), np.array([[2, 0], [1, 1]])),
        (IMAGES, np.zeros((5, 2, 1, 2)), IMAGES.transpose(0, 2, 3, 1)),
    ],
    ids=["ids", "a column", "one-hot", "from one-hot", "flattened", "from channels", "channels last"],
)  # fmt: skip
def test_a_target_in_the_form_of_the_scripts_own(array: np.ndarray, own: np.ndarray, expected: np.ndarray):
    found = like(own, array, 2)
    np.testing.assert_array_equal(found, expected)
    assert found.shape == expected.shape and (found.dtype == own.dtype or own.dtype.kind == "f")


def test_a_target_of_another_form():
    with pytest.raises(UsageError, match=r"has the shape \[2, 4\], for 2 samples, and that of Keras's script \[5, 3\]"):
        like(np.zeros((5, 3)), np.zeros((2, 4)), 2)


MODEL = "import keras, sys, numpy as np, tensorflow as tf\nx = np.ones((4, 2), 'float32')\n"
DENSE = "m, n = (keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]) for _ in range(2))\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MODEL + "m = 1", "ended, and neither called fit or train_on_batch, nor a model where a tf.GradientTape"),
        (MODEL + DENSE + "m.fit(x, x)", "calls fit of a model that it has not compiled"),
        (
            MODEL + DENSE + "with tf.GradientTape(): m([x], True)",
            "calls its model with 2 positional arguments that are no tensors, expected tensors",
        ),
    ],
)
def test_scripts_that_train_otherwise(text: str, message: str, tmp_path: Path):
    with pytest.raises(UsageError, match=message):
        _script(tmp_path, text).build()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            MODEL + DENSE + "o = keras.optimizers.SGD()\nwith tf.GradientTape(): m(x)",
            "ended before its backward pass",
        ),
        (
            MODEL + DENSE + "o = keras.optimizers.SGD()\nwith tf.GradientTape(): m(x); n(x)",
            "trains two models that it calls",
        ),
    ],
)
def test_loops_that_train_otherwise(text: str, message: str, tmp_path: Path):
    script = _script(tmp_path, text)
    model = script.build()
    with pytest.raises(UsageError, match=message):
        script.step(model, script.optimizer(), {"x": tf.ones((4, 2))})
    script.close()


def test_a_copy_has_weights_of_its_own():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    other = keras.models.clone_model(model)
    other.set_weights(model.get_weights())
    model(np.ones((1, 2)))
    assert copies([model], [model, model._functional, other]) == [(other, model)]
