"""Steps of training of a user's model: losses, masks, optimizers, and what is refused."""

import numpy as np
import pytest
from pairs import ENTRIES, MATCHES, MLP, WEIGHTS, Pair, data, mlp, near, read, steps

from parity.core import random
from parity.core.errors import BackendError, UsageError
from parity.pairs import file

# A run that fails leaves the file of its step to the garbage collection.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


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


@pytest.mark.slow
def test_masks_are_numbered_by_the_order_of_the_draws(tmp_path):
    made = mlp(tmp_path, "[train]\nsteps = 1\n", TWICE)
    trace = made.record(ENTRIES, MATCHES)
    rates = (0.25, 0.5, 0.5)
    name = random.mask_name(20)
    kept = [random.keep(0, name, 0, 0, call, (5, 4), rate) / (1 - rate) for call, rate in enumerate(rates)]
    np.testing.assert_allclose(read(trace, "input/b"), read(trace, "activation/a") * np.prod(kept, 0), rtol=1e-12)


def test_a_layer_that_draws_other_masks_is_refused(tmp_path):
    made = mlp(tmp_path, "[train]\n", MLP.replace("L.Dropout(0.5)", "L.AlphaDropout(0.5)"))
    with pytest.raises(UsageError, match=r"drop.*AlphaDropout draws masks of another kind"):
        made.record(ENTRIES, MATCHES)


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


@pytest.mark.slow
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
        pytest.param(
            "def loss(outputs, target): return outputs",
            UsageError,
            r"expected one number, received the shape \(5, 3\)",
            marks=pytest.mark.slow,
        ),
        ("def loss(): return 0.0", UsageError, "is called as loss"),
        pytest.param(
            "def loss(outputs, target): return 1 / 0",
            BackendError,
            r"fails: ZeroDivisionError: .*\.py:\d+$",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_loss_that_cannot_be_used(tmp_path, code, kind, message):
    with pytest.raises(kind, match=message):
        users_own(tmp_path, f"{MLP}\n{code}\n", loss="loss").record(ENTRIES, MATCHES)


def test_an_optimizer_that_is_none(tmp_path):
    with pytest.raises(UsageError, match=r"expected a keras\.optimizers\.Optimizer, received int"):
        users_own(tmp_path, MLP + "\ndef make(): return 3\n", optimizer="make").record(ENTRIES, MATCHES)


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_layers_add_is_part_of_the_loss(tmp_path):
    """As fit has it: the penalty of a kernel is 0.01 times the sum of its squares."""
    code = MLP.replace('name="b"', 'name="b", kernel_regularizer="l2"')
    plain = mlp(tmp_path / "plain", "[train]\nsteps = 1\n").record(ENTRIES, MATCHES)
    regular = mlp(tmp_path / "regular", "[train]\nsteps = 1\n", code).record(ENTRIES, MATCHES)
    weight = read(plain, "parameter/b.weight", None)
    near(read(regular, "loss/loss"), read(plain, "loss/loss") + 0.01 * (weight**2).sum())
    near(read(regular, "gradient/b.weight"), read(plain, "gradient/b.weight") + 0.02 * weight)


def test_a_frozen_layer_has_values_and_gradients_of_zero(tmp_path):
    code = MLP.replace('use_bias=False, name="a"', 'use_bias=False, name="a", trainable=False')
    trace = mlp(tmp_path, "[train]\nsteps = 1\noptimizer = 'adam'\n", code).record(ENTRIES, MATCHES)
    keys = steps(trace)["step-000000"]
    assert "parameter/a.weight" in keys
    for key in ("gradient/a.weight", "optimizer_state/a.weight.exp_avg"):  # torch trains it: None is zero
        assert key in keys and not read(trace, key).any()
    assert "a.weight" not in trace.manifest.layout.parameters
