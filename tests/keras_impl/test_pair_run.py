"""What a record run of a user's model leaves, in torch's names and axes: compared with the same sums in NumPy."""

import keras
import msgspec
import numpy as np
import pytest
from pairs import Pair, pair

from parity import random
from parity.errors import BackendError, UsageError
from parity.pairs import file, survey
from parity.pairs.inputs import PairData
from parity.pairs.mapping import Entry, Match
from parity.trace.keys import step_file

# A run that fails leaves the file of its step to the garbage collection.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

HEAD = "import keras\nimport tensorflow as tf\nfrom keras import layers as L, ops\n"
MLP = """
class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = L.Dense(4, use_bias=False, name="a"), L.Dropout(0.5), L.Dense(3, name="b")
    def call(self, x):
        return self.b(self.drop(self.a(x)))
"""
X = "[inputs.x]\nshape = [5, 6]\n"
WEIGHTS = {
    name: random.representable(random.normal(1, name, shape), "float32")
    for name, shape in {"a.weight": (4, 6), "b.weight": (3, 4), "b.bias": (3,)}.items()
}
ENTRIES = [
    Entry(torch=["a.weight"], keras=["a/kernel"], rearrange="o i -> i o"),
    Entry(torch=["b.weight"], keras=["b/kernel"], rearrange="o i -> i o"),
    Entry(torch=["b.bias"], keras=["b/bias"]),
]
MATCHES = [
    Match(torch="a", keras="a", axes=[0, 1], inputs=[0, 1], by="weights"),
    Match(torch="b", keras="b", axes=[0, 1], inputs=[0, 1], by="weights"),
]


def mlp(folder, toml="", code=MLP, **changes) -> Pair:
    made = pair(folder, HEAD + code, X + toml, **changes)
    made.reference(WEIGHTS, {"a": (5, 4), "b": (5, 3)}, arguments={"a": [(5, 6)], "b": [(5, 4)]})
    return made


def steps(trace, run="high"):
    """The keys of each file, and what reads them."""
    return {name.rpartition("/")[2]: keys for name, keys in trace.manifest.files.items() if name.startswith(run)}


def read(trace, key, step=0, run="high"):
    return np.asarray(trace.open(run, step_file(step))[key])


def data(made):
    return PairData(made.case, [str(made.folder)])


def test_a_forward_and_its_gradients(tmp_path):
    made = mlp(tmp_path)
    trace = made.record(ENTRIES, MATCHES)
    assert steps(trace)["initial"] == ["parameter/a.weight", "parameter/b.weight", "parameter/b.bias"]
    assert steps(trace)["step-000000"] == [
        *("input/input", "input/a", "activation/a", "input/b", "activation/b", "activation/(model)", "loss/loss"),
        *("gradient/a.weight", "gradient/b.weight", "gradient/b.bias", "gradient/(input).x"),
    ]
    x, (a, b, bias) = data(made).step(0)["x"], WEIGHTS.values()
    y, r = x @ a.T @ b.T + bias, data(made).probe(0, (5, 3))
    near(read(trace, "input/input"), x)
    near(read(trace, "activation/(model)"), y)
    near(read(trace, "loss/loss"), (y * r).mean())
    near(read(trace, "gradient/b.weight"), r.T @ (x @ a.T) / 15)
    near(read(trace, "gradient/a.weight"), (r @ b).T @ x / 15)
    near(read(trace, "gradient/(input).x"), r @ b @ a / 15)
    assert trace.manifest.modules == {"a": "linear", "b": "linear"}
    assert trace.manifest.layout.parameters == {"a.weight": [0], "b.weight": [0], "b.bias": [0]}


def near(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-15)


def test_the_low_run_is_float32(tmp_path):
    trace = mlp(tmp_path).record(ENTRIES, MATCHES, "low", "high")
    assert read(trace, "activation/b", run="low").dtype == np.float32
    assert read(trace, "gradient/(input).x", run="low").dtype == np.float32
    assert read(trace, "activation/b").dtype == np.float64


def test_half_precision_is_a_mixed_policy(tmp_path):
    trace = mlp(tmp_path, precision="bfloat16").record(ENTRIES, MATCHES, "low")
    assert read(trace, "activation/b", run="low").dtype.name == "bfloat16"
    assert read(trace, "gradient/b.weight", run="low").dtype == np.float32


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training(tmp_path, optimizer):
    made = mlp(tmp_path, f"[train]\noptimizer = '{optimizer}'\nlearning_rate = 0.5\nsteps = 2\n")
    trace = made.record(ENTRIES, MATCHES)
    assert list(steps(trace)) == ["initial", "step-000000", "step-000001", "step-000002"]
    first = steps(trace)["step-000000"]
    assert first.index("input/target") < first.index("loss/loss") < first.index("gradient/a.weight")
    assert ("optimizer_state/b.bias.exp_avg" in first) == (optimizer == "adam")
    y, target = read(trace, "activation/(model)"), data(made).target(0, (5, 3), False)
    near(read(trace, "input/target"), target)
    near(read(trace, "loss/loss"), ((y - target) ** 2).mean())
    gradient = 2 * (y - target).sum(0) / 15
    near(read(trace, "gradient/b.bias"), gradient)
    if optimizer == "sgd":
        near(read(trace, "parameter/b.bias"), WEIGHTS["b.bias"] - 0.5 * gradient)
    assert steps(trace)["step-000002"][-1] == "activation/(model)"
    x = data(made).step(0)["x"]
    weights = [read(trace, f"parameter/{name}", 1) for name in WEIGHTS]
    near(read(trace, "activation/(model)", 2), x @ weights[0].T @ weights[1].T + weights[2])


def test_dropout_masks_are_the_shared_ones(tmp_path):
    made = mlp(tmp_path, "[train]\nsteps = 2\n")
    trace = made.record(ENTRIES, MATCHES)
    for step in range(2):
        kept = random.keep(0, "dropout", 0, step, 0, (5, 4), 0.5)
        np.testing.assert_allclose(read(trace, "input/b", step), read(trace, "activation/a", step) * kept * 2)
    near(read(trace, "input/b", 2), read(trace, "activation/a", 2))


TWICE = """
class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.drop = L.Dense(4, use_bias=False, name="a"), L.SpatialDropout1D(0.5)
        self.b = L.Dense(3, name="b")
    def call(self, x, training=False):
        y = keras.random.dropout(self.a(x), 0.25) if training else self.a(x)
        y = self.drop(y[:, None])[:, 0]
        return self.b(tf.nn.dropout(y, 0.5) if training else y)
"""


def test_masks_are_numbered_by_the_order_of_the_draws(tmp_path):
    made = mlp(tmp_path, "[train]\nsteps = 1\n", TWICE)
    trace = made.record(ENTRIES, MATCHES)
    rates = (0.25, 0.5, 0.5)
    kept = [random.keep(0, "dropout", 0, 0, call, (5, 4), rate) / (1 - rate) for call, rate in enumerate(rates)]
    np.testing.assert_allclose(read(trace, "input/b"), read(trace, "activation/a") * np.prod(kept, 0), rtol=1e-12)


def test_a_layer_that_draws_other_masks_is_refused(tmp_path):
    made = mlp(tmp_path, "[train]\n", MLP.replace("L.Dropout(0.5)", "L.GaussianDropout(0.5)"))
    with pytest.raises(UsageError, match=r"drop.*GaussianDropout draws masks of another kind"):
        made.record(ENTRIES, MATCHES)


CONVOLUTION = """
def build():
    return keras.Sequential([L.Conv2D(4, 3, name="conv"), L.Dropout(0.5, name="drop")])
"""
PICTURES = """
[inputs.x]
shape = [2, 3, 5, 6]
keras_layout = "n c h w -> n h w c"
[outputs.y]
keras_layout = "n c h w -> n h w c"
"""
KERNEL = WEIGHTS | {"conv.weight": random.normal(1, "k", (4, 3, 3, 3)), "conv.bias": random.normal(1, "kb", (4,))}


def convolution(folder, toml=""):
    made = pair(folder, HEAD + CONVOLUTION, PICTURES + toml)
    shape = (2, 4, 3, 4)
    weights = {name: KERNEL[name] for name in ("conv.weight", "conv.bias")}
    made.reference(weights, {"conv": shape, "drop": shape, "(model).y": shape}, arguments={"conv": [(2, 3, 5, 6)]})
    entries = [
        Entry(torch=["conv.weight"], keras=["conv/kernel"], rearrange="o i h w -> h w i o"),
        Entry(torch=["conv.bias"], keras=["conv/bias"]),
    ]
    axes = [0, 3, 1, 2]
    matches = [
        Match(torch="conv", keras="conv", axes=axes, inputs=axes, by="weights"),
        Match(torch="drop", keras="drop", axes=axes, by="order"),
    ]
    return made, made.record(entries, matches)


def test_everything_is_in_torchs_axes(tmp_path):
    made, trace = convolution(tmp_path)
    x = data(made).step(0)["x"]
    near(read(trace, "input/input"), x)
    near(read(trace, "input/conv"), x)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, KERNEL["conv.weight"]) + KERNEL["conv.bias"][:, None, None]
    for key in ("conv", "drop", "(model).y"):
        np.testing.assert_allclose(read(trace, f"activation/{key}"), y, rtol=1e-12)
    near(read(trace, "loss/loss"), (y * data(made).probe(0, y.shape)).mean())
    assert read(trace, "gradient/conv.weight").shape == (4, 3, 3, 3)
    assert read(trace, "gradient/(input).x").shape == (2, 3, 5, 6)


def test_masks_are_counted_in_torchs_axes(tmp_path):
    _, trace = convolution(tmp_path, "[train]\nsteps = 1\n")
    kept = random.keep(0, "dropout", 0, 0, 0, (2, 4, 3, 4), 0.5)
    np.testing.assert_allclose(read(trace, "activation/drop"), read(trace, "activation/conv") * kept * 2)


def test_classes_stand_last_in_keras_axes(tmp_path):
    made, trace = convolution(tmp_path, "[train]\nloss = 'cross_entropy'\nsteps = 1\n")
    target = data(made).target(0, (2, 3, 4, 4), True)
    np.testing.assert_array_equal(read(trace, "input/target"), target)
    y = read(trace, "activation/(model).y").transpose(0, 2, 3, 1)
    chosen = np.take_along_axis(y, target[..., None], -1)[..., 0]
    near(read(trace, "loss/loss"), (np.log(np.exp(y).sum(-1)) - chosen).mean())


LOSS = """
def loss(outputs, target):
    return tf.reduce_sum(tf.abs(outputs - target))
def make():
    return keras.optimizers.SGD(0.25, momentum=0.5)
"""


def users_own(folder, code, **own: str) -> Pair:
    """`own`: names of functions in the code, for keras_loss or keras_optimizer."""
    made = mlp(folder, "", code)
    module = made.case.model.keras.partition(":")[0]
    lines = [f"torch_{what} = 'a:b'\nkeras_{what} = '{module}:{name}'\n" for what, name in own.items()]
    path = folder / "pair.toml"
    path.write_text(path.read_text() + "[train]\nsteps = 1\n" + "".join(lines))
    return Pair(folder, file.load(path).case)


def test_a_loss_and_an_optimizer_of_the_users(tmp_path):
    trace = users_own(tmp_path, MLP + LOSS, loss="loss", optimizer="make").record(ENTRIES, MATCHES)
    y, target = read(trace, "activation/(model)"), read(trace, "input/target")
    near(read(trace, "loss/loss"), np.abs(y - target).sum())
    gradient = read(trace, "gradient/b.bias")
    near(gradient, np.sign(y - target).sum(0))
    near(read(trace, "parameter/b.bias"), WEIGHTS["b.bias"] - 0.25 * gradient)
    assert read(trace, "optimizer_state/b.bias.momentum_buffer").shape == (3,)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("def loss(outputs, target): return outputs", UsageError, r"expected one number, received the shape \(5, 3\)"),
        ("def loss(outputs): return outputs", UsageError, "is called as loss"),
        ("def loss(outputs, target): return 1 / 0", BackendError, r"fails: ZeroDivisionError: .*\.py:\d+$"),
    ],
)
def test_a_loss_that_cannot_be_used(tmp_path, code, kind, message):
    with pytest.raises(kind, match=message):
        users_own(tmp_path, f"{MLP}\n{code}\n", loss="loss").record(ENTRIES, MATCHES)


def test_an_optimizer_that_is_none(tmp_path):
    with pytest.raises(UsageError, match=r"expected a keras\.optimizers\.Optimizer, received int"):
        users_own(tmp_path, MLP + "\ndef make(): return 3\n", optimizer="make").record(ENTRIES, MATCHES)


def test_a_target_of_the_files(tmp_path):
    toml = (
        "[inputs.target]\nshape = [{}]\ndtype = 'int64'\nrange = [0, 3]\n[train]\nloss = 'cross_entropy'\nsteps = 1\n"
    )
    made = mlp(tmp_path / "right", toml.format(5))
    trace = made.record(ENTRIES, MATCHES)
    np.testing.assert_array_equal(read(trace, "input/target"), data(made).target(0, (5, 3), True))
    assert "input/input#1" not in steps(trace)["step-000000"]
    with pytest.raises(UsageError, match=r"inputs\.target: shape \[4\], expected \[5\]"):
        mlp(tmp_path / "wrong", toml.format(4)).record(ENTRIES, MATCHES)


def test_what_layers_add_is_no_part_of_the_loss(tmp_path):
    code = MLP.replace('name="b"', 'name="b", kernel_regularizer="l2", activity_regularizer="l1"')
    plain = mlp(tmp_path / "plain", "[train]\nsteps = 1\n").record(ENTRIES, MATCHES)
    regular = mlp(tmp_path / "regular", "[train]\nsteps = 1\n", code).record(ENTRIES, MATCHES)
    near(read(regular, "loss/loss"), read(plain, "loss/loss"))
    near(read(regular, "gradient/b.weight"), read(plain, "gradient/b.weight"))


def test_layers_within_a_function_of_tensorflow_are_seen(tmp_path):
    trace = mlp(tmp_path, "", MLP.replace("    def call", "    @tf.function\n    def call")).record(ENTRIES, MATCHES)
    assert "activation/a" in steps(trace)["step-000000"]


def test_a_frozen_layer_has_values_and_no_gradients(tmp_path):
    code = MLP.replace('use_bias=False, name="a"', 'use_bias=False, name="a", trainable=False')
    trace = mlp(tmp_path, "[train]\nsteps = 1\noptimizer = 'adam'\n", code).record(ENTRIES, MATCHES)
    keys = steps(trace)["step-000000"]
    assert "parameter/a.weight" in keys
    assert not {"gradient/a.weight", "optimizer_state/a.weight.exp_avg"} & set(keys)
    assert "a.weight" not in trace.manifest.layout.parameters


def test_a_weight_without_a_value_is_named(tmp_path):
    with pytest.raises(BackendError, match="b/bias have no values"):
        mlp(tmp_path).record(ENTRIES[:2], MATCHES)


def test_an_ignored_weight_needs_no_value(tmp_path):
    trace = mlp(tmp_path).record(ENTRIES[:2], MATCHES, ignored=("b/bias",))
    assert "gradient/b.bias" not in steps(trace)["step-000000"]


def test_what_is_lifted_is_told(tmp_path):
    code = MLP.replace("self.b(self.drop", "self.b(ops.cast(self.drop").replace("(x)))", '(x)), "float32"))')
    assert mlp(tmp_path, "", code).record(ENTRIES, MATCHES).manifest.lifted == ["(model): cast: float32"]


SUM = """
class build(keras.Model):
    def __init__(self):
        super().__init__()
        self.w = self.add_weight(shape=(3,), name="w")
        self.moving_mean = self.add_weight(shape=(3,), name="moving_mean", trainable=False)
    def call(self, x, training=False):
        if training:
            self.moving_mean.assign(self.moving_mean + 1)
        return x * self.w + self.moving_mean
"""


def test_sums_and_statistics(tmp_path):
    made = pair(tmp_path, HEAD + SUM, "[inputs.x]\nshape=[2, 3]\n[train]\nsteps = 1\noptimizer = 'adam'\n")
    one, two, mean = np.ones(3), np.arange(3.0), np.full(3, 0.25)
    made.reference({"ih": one, "hh": two, "running_mean": mean}, {})
    entries = [
        Entry(torch=["ih", "hh"], keras=["w"], combine="sum"),
        Entry(torch=["running_mean"], keras=["moving_mean"]),
    ]
    trace = made.record(entries, [])
    assert steps(trace)["initial"] == ["parameter/ih", "parameter/hh", "buffer/running_mean"]
    near(read(trace, "parameter/hh", None), two)
    near(read(trace, "gradient/ih"), read(trace, "gradient/hh"))
    near(read(trace, "buffer/running_mean"), mean + 1)
    near(read(trace, "parameter/hh"), two)
    assert "optimizer_state/ih.exp_avg" in steps(trace)["step-000000"]
    assert "optimizer_state/hh.exp_avg" not in steps(trace)["step-000000"]


def test_every_run_is_built_anew(tmp_path):
    made = mlp(tmp_path)
    first = read(made.record(ENTRIES, MATCHES), "activation/b")
    keras.utils.set_random_seed(7)
    assert read(made.record(ENTRIES, MATCHES), "activation/b").tobytes() == first.tobytes()


def test_a_buffer_that_never_changes_is_given_and_not_recorded(tmp_path):
    code = SUM.replace("self.moving_mean.assign(self.moving_mean + 1)", "pass")
    made = pair(tmp_path, HEAD + code, "[inputs.x]\nshape=[2, 3]\n")
    made.reference({"weight": np.zeros(3), "table": np.arange(3.0)}, {})
    told = survey.read(made.torch)
    told = msgspec.structs.replace(told, weights=[msgspec.structs.replace(w, trainable=False) for w in told.weights])
    survey.write(made.torch, told)
    entries = [Entry(torch=["weight"], keras=["w"]), Entry(torch=["table"], keras=["moving_mean"])]
    trace = made.record(entries, [])
    assert steps(trace)["initial"] == ["parameter/weight"]
    near(read(trace, "activation/(model)"), np.tile(np.arange(3.0), (2, 1)))


def test_what_goes_from_layer_to_layer_is_stored_once(tmp_path):
    made = mlp(tmp_path, "", MLP.replace("L.Dropout(0.5)", "L.Dropout(0.5, name='drop')"))
    made.reference(WEIGHTS, {"a": (5, 4), "drop": (5, 4), "b": (5, 3)}, arguments={"b": [(5, 4)]})
    trace = made.record(ENTRIES, [*MATCHES, Match(torch="drop", keras="drop", axes=[0, 1], by="order")])
    assert trace.manifest.aliases == {"high/rank-0/step-000000": {"input/b": "activation/a"}}
    near(read(trace, "input/b"), read(trace, "activation/drop"))
