"""The truth about a mutant is found by Keras alone: what is equivalent, what is not, and what cannot be run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mutating import port
from mutating.campaign import TruthProcess

SOURCE = """import keras
from keras import layers, ops


class Block(layers.Layer):
    def __init__(self, width, scale=1.0, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = layers.Dense(width), layers.Dense(width)
        self.norm, self.drop = layers.BatchNormalization(momentum=0.9), layers.Dropout(0.5)
        self.scale = scale

    def call(self, x, mask=None):
        first, second = self.first(x), self.second(x)
        y = first + second + 0.0 * ops.sum(x)
        return self.drop(self.norm(self.scale * y))


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.spare = layers.Dense(3, name="spare")
        self.embed, self.block = layers.Embedding(11, 4), Block(4)
        self.heads = layers.EinsumDense("btm,mvh->btvh", output_shape=(None, 2, 3))

    def call(self, ids, mask):
        x = self.embed(ids) * ops.expand_dims(ops.cast(mask, "float32"), -1)
        self.spare(x)
        return self.block(ops.max(self.heads(x), axis=-1))


def build():
    return Model()
"""
PAIR = """
[pair]
name = "small"
torch = "small_torch:build"
keras = "small_keras:build"
[inputs.ids]
shape = [2, 5]
dtype = "int32"
range = [0, 11]
[inputs.mask]
shape = [2, 5]
dtype = "int32"
range = [1, 2]
[train]
"""


EVERYWHERE = {"outputs", "training", "gradients", "state", "padded", "shorter"}


@pytest.fixture(scope="module")
def truth() -> Iterator[TruthProcess]:
    process = TruthProcess()
    yield process
    process.close()


@pytest.fixture(scope="module")
def small(truth, tmp_path_factory) -> tuple[Path, Path, dict]:
    """The pair's file, its port, and what is known of the port's lines."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("port") / "port"
    (home / "small_keras.py").write_text(SOURCE)
    (home / "small.toml").write_text(PAIR)
    answer = truth.ask(do="port", pair=str(home / "small.toml"), folder=str(folder))
    assert "error" not in answer
    return home / "small.toml", folder, answer


def line_of(text: str) -> str:
    return str(next(number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line))


@pytest.mark.slow
def test_a_port_tells_what_its_lines_have_to_do_with_layers(small):
    lines = small[2]["lines"]["small_keras.py"]
    assert set(lines[line_of("layers.Dense(width)")]["makes"]) == {"block/dense", "block/dense_1"}
    assert {"embedding", "block", "block/dense"} < set(lines[line_of("self.embed, self.block =")]["makes"])
    assert lines[line_of("y = first + second")]["within"] == ["block"]
    assert lines[line_of("self.drop(self.norm")]["calls"] == ["block/batch_normalization", "block/dropout"]
    assert line_of("import keras") not in lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ("first + second", "second + first", set()),
        ("0.0 * ops.sum(x)", "0.0 * ops.mean(x)", set()),
        ("scale=1.0", "scale=2.0 / 2", set()),
        ("self.first(x), self.second(x)", "self.second(x), self.first(x)", set()),  # the sum of both
        ("first + second", "first - second", EVERYWHERE),
        ("momentum=0.9", "momentum=0.8", {"state"}),
        ("Dropout(0.5)", "Dropout(0.4)", {"training", "gradients"}),
        ("first + second", "first + ops.stop_gradient(second)", {"gradients"}),
        ('ops.cast(mask, "float32")', 'ops.ones_like(mask, "float32")', {"padded", "shorter"}),
        ('ops.cast(mask, "float32")', 'ops.cast(ops.cast(mask, "float16"), "float32")', set()),
        ("self.scale * y", 'ops.cast(ops.cast(self.scale * y, "float16"), y.dtype)', {"outputs"}),
        ("btm,mvh->btvh", "btm,mvh->bthv", set()),  # another order of the kernel's axes, and nothing else
        ("        self.spare(x)\n", "", set()),  # weights that nothing depends on, though they come first
        ("axis=-1)", "axis=-2)[..., :2]", EVERYWHERE),
        ("layers.Embedding(11, 4)", "layers.Embedding(12, 4)", EVERYWHERE),
        (
            "layers.Dense(width), layers.Dense(width)",
            "layers.Dense(width, use_bias=False), layers.Dense(width)",
            EVERYWHERE,
        ),
        ("layers.Embedding(11, 4)", "layers.Embedding(11, -4)", None),
        ("self.first(x), self.second(x)", "self.first(x), self.third(x)", None),
    ],
)
def test_the_truth_about_a_mutant(small, truth, tmp_path, before, after, where):
    pair, folder, _ = small
    assert SOURCE.count(before) == 1
    port.write(tmp_path / "mutant", folder, "small_keras.py", SOURCE.replace(before, after))
    answer = truth.ask(do="mutant", pair=str(pair), folder=str(folder), mutant=str(tmp_path / "mutant"))
    if where is None:
        assert "error" in answer
    elif where == {"outputs"}:
        assert answer["differences"]["outputs"] > 1e-6
    else:
        assert set(answer["differences"]) == where


TWO = """import keras
from keras import layers, ops


def build():
    x = keras.Input((5,))
    return keras.Model(x, {"z": layers.Dense(3)(x), "a": layers.Dense(4)(ops.negative(layers.Dense(3)(x)))})
"""
TWO_PAIR = """
[pair]
name = "two"
torch = "two_torch:build"
keras = "two_keras:build"
[inputs.x]
shape = [2, 5]
[outputs.first]
keras = "z"
[outputs.second]
keras = "a"
"""


@pytest.mark.slow
@pytest.mark.parametrize(("train", "where"), [("", {"gradients"}), ("[train]\n", set())])
def test_in_training_the_gradients_of_its_loss_count(truth, tmp_path, train, where):
    """Without a loss of the user's that is made of the first output alone."""
    home, folder, mutant = tmp_path / "home", tmp_path / "port" / "port", tmp_path / "mutant" / "mutant"
    home.mkdir()
    (home / "two_keras.py").write_text(TWO)
    (pair := home / "two.toml").write_text(TWO_PAIR + train)
    assert "error" not in truth.ask(do="port", pair=str(pair), folder=str(folder))
    port.write(mutant, folder, "two_keras.py", TWO.replace("ops.negative(", "-ops.stop_gradient("))
    answer = truth.ask(do="mutant", pair=str(pair), folder=str(folder), mutant=str(mutant))
    assert set(answer["differences"]) == where


def test_a_library_s_code_becomes_the_user_s(tmp_path):
    pytest.importorskip("libcst")
    source = 'import keras\n\n@keras_hub_export("keras_hub.models.X")\nclass X(keras.layers.Layer):\n    pass\n'
    assert port.renamed(source, None, {}) == "import keras\n\nclass X(keras.layers.Layer):\n    pass\n"
    imports = "from json.decoder import JSONDecoder, WHITESPACE\n"
    renamed = port.renamed(imports, None, {"json.decoder": "port.decoder"})
    assert renamed == "from port.decoder import JSONDecoder; from json.decoder import WHITESPACE\n"
