"""A pair's file: what it may say, and one clear line for what it may not."""

from pathlib import Path

import numpy as np
import pytest

from parity.config import schema
from parity.config.pair import Pair
from parity.core.errors import UsageError
from parity.data.pairs import PairData
from parity.pairs.file import PairFile, from_flags, load

HEAD = """
[pair]
name = "m"
torch = "a:b"
keras = "c:d"
kwargs = { layers = 2, sizes = [1, 2] }
"""
EXPECT = "[[expect]]\nreason = 'r'\n"
INPUT = """
[inputs.ids]
shape = [2, 50]
dtype = "int32"
range = [3, 7]
"""


def loaded(folder: Path, text: str, *overrides: str, **fields: object) -> PairFile:
    path = folder / "m.toml"
    path.write_text(text)
    return load(path, overrides, **fields)


def data(file: PairFile) -> PairData:
    return PairData(file.case, file.search)


def test_a_file_is_a_case(tmp_path: Path) -> None:
    train = '[train]\noptimizer = "adamw"\nloss = "cross_entropy"\nsteps = 4\nlearning_rate = 0.5\n'
    case = loaded(tmp_path, HEAD + INPUT + train).case
    assert (case.name, case.strategy, case.steps) == ("pair/m", "single", 4)
    assert case.loss == schema.Loss(kind="cross_entropy")
    assert case.optimizer == schema.AdamW(learning_rate=0.5)
    assert isinstance(case.model, Pair) and case.model.kwargs == {"layers": 2, "sizes": [1, 2]}


def test_without_training_there_is_one_pass(tmp_path: Path) -> None:
    file = loaded(tmp_path, HEAD + INPUT)
    assert file.case.steps == 1
    assert file.search == [str(tmp_path), str(Path.cwd())]


def test_weights_are_kept_beside_rules_for_them(tmp_path: Path) -> None:
    rule = "[[weights]]\ntorch = 'a'\nkeras = 'b'\n"
    for text, kept, rules in (("", False, 0), ("weights = 'torch'", True, 0), ("weights = 'torch'", True, 1)):
        model = loaded(tmp_path, HEAD + text + INPUT + rule * rules).case.model
        assert isinstance(model, Pair) and (model.keeps_weights, len(model.weights)) == (kept, rules)


def test_the_name_is_the_file_s_if_none_is_given(tmp_path: Path) -> None:
    assert loaded(tmp_path, HEAD.replace('name = "m"', "") + INPUT).case.name == "pair/m"


def test_flags_change_what_the_file_says(tmp_path: Path) -> None:
    file = loaded(tmp_path, HEAD + INPUT + "[train]\n", "train.optimizer=adam", steps=7, seed=3, precision="bfloat16")
    assert (file.case.steps, file.case.seed, file.case.precision) == (7, 3, "bfloat16")
    assert isinstance(file.case.optimizer, schema.Adam)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a section [pair]"),
        ("[pair", "is not TOML"),
        (HEAD, "needs at least one input"),
        (HEAD.replace('torch = "a:b"', "") + INPUT, "missing required field `torch`"),
        (HEAD + INPUT + "shpe = [3]", "[inputs.ids]: Object contains unknown field `shpe` (did you mean 'shape'?)"),
        (HEAD + INPUT + "[inputs.x]\ndtype = 'float31'", "[inputs.x]: Invalid enum value 'float31'"),
        (HEAD + INPUT + "[inputs.x]\nrange = [0, 3]", "[inputs.x]: range is for integers"),
        (HEAD + INPUT + "[inputs.x]\ndtype = 'int8'\nrange = [3, 3]", "expected [first, last + 1]"),
        (HEAD + INPUT + "[outputs.y]\ntroch = 'a'", "[outputs.y]: Object contains unknown field `troch`"),
        (HEAD + INPUT + "[[expect]]\ncause = 'a'", "missing required field `reason` - at `$.expect[0]`"),
        (HEAD + INPUT + EXPECT, "an expectation without a cause accepts any difference"),
        (HEAD + INPUT + EXPECT + "cause = 'unknown'", "whose cause is 'unknown' accepts any difference"),
        (HEAD + INPUT + EXPECT + "cause = 'internal_error'", "whose cause is 'internal_error' accepts any difference"),
        (
            HEAD + INPUT + EXPECT + "cause = 'unknown'\nwhere = 'head'",
            "expected the name of a cause, or largest_difference",
        ),
        (
            HEAD + INPUT + EXPECT + "largest_difference = 1.0",
            "where is '*', which matches everything; without a cause, name the module or tensor",
        ),
        (HEAD + INPUT + EXPECT + "at_most_bits = 3\nwhere = '?*[!-]*'", "where is '?*[!-]*', which matches everything"),
        (HEAD + INPUT + EXPECT + "largest_difference = inf\nwhere = 'x'", "an infinite size accepts any difference"),
        (HEAD + INPUT + EXPECT + "largest_difference = 0.0\nwhere = 'x'", "at `$.expect[0].largest_difference`"),
        (HEAD + INPUT + EXPECT + "cause = 'a'\nbits = 3", "unknown field `bits`"),
        (HEAD + INPUT + "[[weights]]\ntorch = 'a'", "missing required field `keras` - at `$.weights[0]`"),
        (HEAD + INPUT + "[trian]\nsteps = 1", "unknown field `trian` - at `$` (did you mean 'train'?)"),
        (HEAD + INPUT + "[train]\nsteps = 0", "at `$.train.steps`"),
        (HEAD + INPUT + "[inputs.'target.a']\nshape = [2]", "a loss takes one target, called 'target'"),
        (HEAD + INPUT + "[train]\nkeras_loss = 'a:b'", "received only one of torch_loss and keras_loss"),
        (HEAD + "weights = 'keras'" + INPUT, "[pair] weights is 'keras', expected \"torch\", or a section [[weights]]"),
        (HEAD + "[pair.inputs.x]\nshape = [1]", "[pair.inputs] stands inside [pair], expected [inputs]"),
        (HEAD.replace("layers = 2", "layers = nan") + INPUT, "a number that is not finite"),
        (HEAD.replace('"m"', '"../m"') + INPUT, "expected a text without slashes"),
    ],
)
def test_a_mistake_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        loaded(tmp_path, text)
    assert said in str(error.value) and "\n" not in str(error.value)
    assert "m.toml" in str(error.value)


def test_steps_without_training_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"add \[train\]"):
        loaded(tmp_path, HEAD + INPUT, steps=3)


def test_flags_stand_for_a_file() -> None:
    file = from_flags("m:f", "n:g", ["x=float32[8,16]", "ids=int64[2]<7"], train={"steps": 2})
    assert (file.case.name, file.case.steps) == ("pair/m.f-n.g", 2)
    assert file.flags == ["--torch=m:f", "--keras=n:g", "--input=x=float32[8,16]", "--input=ids=int64[2]<7"]
    assert set(data(file).step(0)["ids"]) <= set(range(7))
    with pytest.raises(UsageError, match="two of the name 'x'"):
        from_flags("m:f", "n:g", ["x=float32[8]", "x=float32[8]"])


def test_a_pair_by_flags_is_called_by_both_functions() -> None:
    """Many are called `build`: pairs of one name would share a folder and a process."""
    builders = [("a:build", "b:build"), ("a:build", "c:build"), ("a:build", "b:Net.make"), ("pkg.a:build", "b:build")]
    names = [from_flags(torch, keras, ["x=float32[2]"]).case.name for torch, keras in builders]
    told = ["a.build-b.build", "a.build-c.build", "a.build-b.Net.make", "pkg.a.build-b.build"]
    assert names == [f"pair/{name}" for name in told]
    assert from_flags("a:build", "b:build", ["x=float32[2]"], name="mine").case.name == "pair/mine"


def test_inputs_are_drawn_by_name_and_step(tmp_path: Path) -> None:
    floats = "[inputs.x]\nshape = [3, 4]\nscale = 100.0\n[inputs.target]\nshape = [3]\n"
    inputs = data(loaded(tmp_path, HEAD + INPUT + floats + "[train]\n"))
    first, second = inputs.step(0), inputs.step(1)
    assert set(first) == {"ids", "x"}  # the target is the loss's
    assert (first["ids"].dtype, first["x"].dtype) == (np.int32, np.float64)
    assert set(first["ids"].flat) == {3, 4, 5, 6}
    assert abs(first["x"]).max() > 30 and np.array_equal(first["x"], first["x"].astype(np.float32))
    assert not np.array_equal(first["x"], second["x"]) and np.array_equal(first["x"], inputs.step(0)["x"])
    assert inputs.target(0, (9,), False).shape == (3,)


def test_a_target_is_drawn_where_none_is_given(tmp_path: Path) -> None:
    inputs = data(loaded(tmp_path, HEAD + INPUT))
    ids = inputs.target(0, (4, 10, 5), True)
    assert ids.shape == (4, 10) and ids.dtype == np.int64 and set(ids.flat) == set(range(5))
    assert inputs.target(0, (4, 3), False).shape == (4, 3)


def test_a_seed_of_its_own_keeps_an_input(tmp_path: Path) -> None:
    text = HEAD + "[inputs.x]\nshape = [4]\nseed = 1\n[inputs.y]\nshape = [4]\n"
    one, other = (data(loaded(tmp_path, text, seed=seed)).step(0) for seed in (5, 6))
    assert np.array_equal(one["x"], other["x"]) and not np.array_equal(one["y"], other["y"])


def test_inputs_come_from_an_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.full((2, 3), 0.1), ids=np.arange(4))
    text = HEAD + "[inputs.x]\nnpz = 'data.npz'\n[inputs.ids]\nnpz = 'data.npz'\ndtype = 'int64'\n"
    step = data(loaded(tmp_path, text)).step(0)
    assert step["x"][0, 0] == np.float32(0.1) and step["ids"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("npz = 'date.npz'", "there is no file 'date.npz'"),
        ("npz = 'text.npz'", "cannot be read"),
        ("npz = 'data.npz'\nshape = [9]", "expected (9,)"),
        ("npz = 'data.npz'\ndtype = 'int64'", 'has the dtype float64, but the input has dtype = "int64"'),
        ("npz = 'other.npz'", "has no array 'x' (did you mean 'xx'?)"),
        ("npz = 'nan.npz'", "NaN or infinite numbers"),
    ],
)
def test_a_mistake_in_an_npz_is_one_line(fields: str, said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros((2, 3)))
    np.savez(tmp_path / "other.npz", xx=np.zeros((2, 3)))
    np.savez(tmp_path / "nan.npz", x=np.full(3, np.nan))
    (tmp_path / "text.npz").write_text("not a zip")
    with pytest.raises(UsageError) as error:
        data(loaded(tmp_path, HEAD + f"[inputs.x]\n{fields}"))
    assert said in str(error.value) and str(error.value).startswith("inputs.x: ")


def test_the_digest_tells_other_data(tmp_path: Path) -> None:
    digests = {data(loaded(tmp_path, HEAD + INPUT, seed=seed)).digest for seed in (0, 0, 1)}
    assert len(digests) == 2


def test_an_input_may_be_one_number(tmp_path: Path) -> None:
    given = data(loaded(tmp_path, HEAD + "[inputs.t]\nshape = []\n" + INPUT))
    for arrays in (given.step(0), given.reversed().step(0)):
        assert isinstance(arrays["t"], np.ndarray) and (arrays["t"].shape, arrays["t"].dtype) == ((), np.float64)
    assert isinstance(given.target(0, (), ids=False), np.ndarray) and isinstance(given.probe(0, ()), np.ndarray)
