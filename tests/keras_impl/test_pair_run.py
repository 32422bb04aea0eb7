"""What a record run of a user's model leaves, in torch's names and axes: compared with the same sums in NumPy."""

import keras
import msgspec
import numpy as np
import pytest
import tensorflow as tf
from pairs import ENTRIES, HEAD, MATCHES, MLP, WEIGHTS, data, mlp, near, pair, read, steps

from keras_impl.record.weights import array as stored
from parity.core import random
from parity.core.errors import BackendError
from parity.runtime import survey
from parity.trace.mapping import Entry, Match

# A run that fails leaves the file of its step to the garbage collection.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_half_precision_is_a_mixed_policy(tmp_path):
    trace = mlp(tmp_path, precision="bfloat16").record(ENTRIES, MATCHES, "low")
    assert read(trace, "activation/b", run="low").dtype.name == "bfloat16"
    assert read(trace, "gradient/b.weight", run="low").dtype == np.float32


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_scalars_and_tensors_of_every_precision_become_arrays(dtype):
    for value in (1.5, [1.5, -2.0]):
        array = stored(tf.constant(value, dtype))
        assert isinstance(array, np.ndarray) and array.dtype.name == dtype
        assert array.astype(float).tolist() == value


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
    trained = survey.Seen(key="(model).y", module="", shape=(2, 3, 4, 4) if "entropy" in toml else shape)
    made.reference(
        weights,
        {"conv": shape, "drop": shape, "(model).y": shape},
        arguments={"conv": [(2, 3, 5, 6)]},
        rehearsal=survey.Rehearsal(trained=trained),
    )
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


def test_masks_are_counted_in_torchs_axes(tmp_path):
    _, trace = convolution(tmp_path, "[train]\nsteps = 1\n")
    kept = random.keep(0, random.mask_name(96), 0, 0, 0, (2, 4, 3, 4), 0.5)
    np.testing.assert_allclose(read(trace, "activation/drop"), read(trace, "activation/conv") * kept * 2)


def test_classes_stand_last_in_keras_axes(tmp_path):
    made, trace = convolution(tmp_path, "[train]\nloss = 'cross_entropy'\nsteps = 1\n")
    target = data(made).target(0, (2, 3, 4, 4), True)
    np.testing.assert_array_equal(read(trace, "input/target"), target)
    y = read(trace, "activation/(model).y").transpose(0, 2, 3, 1)
    chosen = np.take_along_axis(y, target[..., None], -1)[..., 0]
    near(read(trace, "loss/loss"), (np.log(np.exp(y).sum(-1)) - chosen).mean())


def test_layers_within_a_function_of_tensorflow_are_seen(tmp_path):
    trace = mlp(tmp_path, "", MLP.replace("    def call", "    @tf.function\n    def call")).record(ENTRIES, MATCHES)
    assert "activation/a" in steps(trace)["step-000000"]


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
    made.reference({"ih": one, "hh": two, "running_mean": mean}, {"(model)": (2, 3)})
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


def test_a_buffer_that_is_no_norm_s_is_given_and_recorded(tmp_path):
    code = SUM.replace("self.moving_mean.assign(self.moving_mean + 1)", "pass")
    made = pair(tmp_path, HEAD + code, "[inputs.x]\nshape=[2, 3]\n")
    made.reference({"weight": np.zeros(3), "table": np.arange(3.0)}, {})
    told = survey.read(made.torch)
    weight, table = told.weights
    table = msgspec.structs.replace(table, trainable=False, constant=True)
    told = msgspec.structs.replace(told, weights=[msgspec.structs.replace(weight, trainable=False), table])
    survey.write(made.torch, told)
    entries = [Entry(torch=["weight"], keras=["w"]), Entry(torch=["table"], keras=["moving_mean"])]
    trace = made.record(entries, [])
    assert steps(trace)["initial"] == ["parameter/weight", "buffer/table"]
    near(read(trace, "activation/(model)"), np.tile(np.arange(3.0), (2, 1)))


def test_what_goes_from_layer_to_layer_is_stored_once(tmp_path):
    made = mlp(tmp_path, "", MLP.replace("L.Dropout(0.5)", "L.Dropout(0.5, name='drop')"))
    made.reference(WEIGHTS, {"a": (5, 4), "drop": (5, 4), "b": (5, 3)}, arguments={"b": [(5, 4)]})
    trace = made.record(ENTRIES, [*MATCHES, Match(torch="drop", keras="drop", axes=[0, 1], by="order")])
    assert trace.manifest.aliases == {"high/rank-0/step-000000": {"input/b": "activation/a"}}
    near(read(trace, "input/b"), read(trace, "activation/drop"))
