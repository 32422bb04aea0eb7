"""Sides of a pair's file: what its tables may say, the parts of a batch, and what several ranks record."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parity.config.schema import Pair
from parity.config.sides import KerasSide, TorchSide, outermost
from parity.core.errors import UsageError
from parity.data.pairs import PairData, Rows, rows_of
from parity.pairs import file
from parity.pairs.equivalence import described
from parity.trace.parts import Parts
from parity.trace.recorder import Recorder
from parity.trace.tensorfile import TensorFile

PAIR = '[pair]\ntorch = "a:b"\n[inputs.x]\nshape = [8, 2]\n[train]\n'


def loaded(folder: Path, tables: str, sides: str, pair: str = PAIR) -> file.PairFile:
    path = folder / "pair.toml"
    path.write_text(pair + tables)
    return file.load(path, sides=sides.split(","))


def test_sides_are_resolved_in_order(tmp_path: Path) -> None:
    found = loaded(tmp_path, "[sides.a]\naccumulate = 4\n[sides.b]\ncompile = true\n", "b,torch,a")
    assert [side.name for side in found.sides] == ["b", "torch", "a"]
    assert [described(side) for side in found.sides] == ["compile = true", "plain run", "accumulate = 4"]
    assert found.flags == [f"--pair={tmp_path / 'pair.toml'}", "--sides=b,torch,a"]
    assert isinstance(found.case.model, Pair) and found.case.model.torch == "a:b"
    keras = PAIR.replace("torch", "keras") + 'keras_optimizer = "a:c"\n'
    found = loaded(tmp_path, '[sides.a]\nframework = "keras"\nxla = true\n', "keras,a", keras)
    assert found.sides == (KerasSide(name="keras"), KerasSide(name="a", xla=True))


WRONG = [
    ("[sides.a]\n", "torch,b", "there is no side 'b'; it has the sides torch, keras, a; declare another one as [sides"),
    ("[sides.acc]\n", "torch,ac", "there is no side 'ac' (did you mean 'acc'?)"),
    ("[sides.a]\n", "torch,torch", "received --sides=torch,torch, expected two or more different sides"),
    ("[sides.a]\n", "a", "expected two or more different sides"),
    (
        "[sides.a]\ncompil = true\n",
        "torch,a",
        "[sides.a]: 'compil' is no switch (did you mean 'compile'?)",
    ),
    ("[sides.a]\ncompil = true\n", "torch,keras", "[sides.a]: 'compil' is no switch"),
    (
        "[sides.a]\ngraph = true\n",
        "torch,a",
        'graph is a switch of framework = "keras"; those of framework = "torch" ar',
    ),
    ('[sides.a]\nframework = "keras"\nstrategy = "ddp"\n', "torch,a", "expected one of 'mirrored', 'single'"),
    ('[sides.a]\nframework = "jax"\n', "torch,a", 'framework is \'jax\', expected "torch" (the default) or "keras"'),
    ('[sides.a]\nstrategy = "dp"\ndevices = 2\n', "torch,a", "expected one of 'ddp', 'fsdp', 'single'"),
    ('[sides.a]\nstrategy = "ddp"\n', "torch,a", "strategy and devices, of 2 or more, belong together"),
    ("[sides.a]\ndevices = 2\n", "torch,a", "received strategy = 'single', devices = 2"),
    ('[sides.a]\npython = "/no/python"\n', "torch,a", "python = '/no/python': there is no such program"),
    ('[sides.a]\ncompile = true\ncheckpointing = "x"\n', "torch,a", "compile and checkpointing exclude each other"),
    ('[sides.a]\naccumulate = 2\nstep = "a:b"\n', "torch,a", "accumulate and step exclude each other"),
    ('[sides.a]\nframework = "keras"\ngraph = true\naccumulate = 2\n', "torch,a", "graph and accumulate exclude each"),
    ('[sides."a,b"]\n', "torch,a", "a side is named by letters, digits, _, - and dots, received 'a,b'"),
    ("[sides.a]\naccumulate = 0\n", "torch,a", "`int` >= 1"),
    ("[sides.a]\n", "torch,keras", "missing required field `keras`"),
]


@pytest.mark.parametrize(("tables", "sides", "said"), WRONG)
def test_what_cannot_be_used_is_one_line(tmp_path: Path, tables: str, sides: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        loaded(tmp_path, tables, sides)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_switch_of_a_training_needs_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"accumulate changes a training, and this pair has none; add a section \[tr"):
        loaded(tmp_path, "[sides.a]\naccumulate = 2\n", "torch,a", PAIR.replace("[train]\n", ""))
    with pytest.raises(
        UsageError, match="accumulate cuts the batches of a plain step, and torch_step is one of your own"
    ):
        loaded(tmp_path, 'torch_step = "a:c"\n[sides.a]\naccumulate = 2\n', "torch,a")
    path = tmp_path / "pair.toml"
    path.write_text(PAIR + "[sides.a]\n")
    with pytest.raises(UsageError, match="to compare sides of this file, add --sides=A,B"):
        file.load(path)


def test_the_command_refuses_what_does_not_go_with_sides(tmp_path: Path) -> None:
    (tmp_path / "pair.toml").write_text(PAIR)
    for flags, said in ((["--sides=a,b"], "it needs --pair"), (["--sides=a,b", "--pair=pair.toml"], "no side 'a'")):
        command = [sys.executable, "-m", "parity.compare", *flags]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert ended.returncode == 2
        assert said in ended.stderr and ended.stderr.count("\n") == 1


def test_the_parts_of_a_batch(tmp_path: Path) -> None:
    data = PairData(loaded(tmp_path, "[sides.a]\n", "torch,a").case, [])
    parts = [data.part(index, 4, "accumulate = 4") for index in range(4)]
    np.testing.assert_array_equal(np.concatenate([part.step(1)["x"] for part in parts]), data.step(1)["x"])
    whole, shape = data.target(0, (8, 3), ids=False), parts[0].part_of((8, 3))
    np.testing.assert_array_equal(np.concatenate([part.target(0, shape, ids=False) for part in parts]), whole)
    with pytest.raises(UsageError, match="accumulate = 3: the input x has 8 rows along dim 0"):
        data.part(0, 3, "accumulate = 3").step(0)


def test_the_rows_of_a_call() -> None:
    batch = np.arange(16.0).reshape(8, 2)
    assert rows_of([batch[5:]], [batch]) == Rows(5, 3, 8)
    assert rows_of([batch], [batch]) is None
    assert rows_of([batch[:3] + 1], [batch]) is None
    assert Rows(5, 3, 8).within(12, "dropout") == (20, 32)
    with pytest.raises(UsageError, match="dropout: 10 random numbers, such as a dropout's mask, are no 3 rows"):
        Rows(5, 3, 8).within(10, "dropout")


def test_parts_are_joined_and_numbers_left_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, steps=1, every=1)
    parts = Parts(recorder)
    parts.next_step()
    parts.add("input", "input", np.arange(4.0))
    for part in range(2):
        parts.begin()
        parts.add("activation", "head", np.full((2, 3), part))
        parts.add("activation", "mean", np.array(1.0))
    parts.join()
    parts.add("loss", "loss", np.array(2.0))
    parts.next_step()
    found = dict(TensorFile(tmp_path / "step-000000.safetensors"))
    assert list(found) == ["input/input", "activation/head", "loss/loss"]
    np.testing.assert_array_equal(found["activation/head"][:, 0], [0, 0, 1, 1])


def test_a_further_rank_records_what_it_alone_has(tmp_path: Path) -> None:
    first: list[object] = []
    for rank, value in enumerate((1.0, 2.0)):
        exchanged: list[object] = []

        def gather(given: object, rank: int = rank, own: list[object] = exchanged) -> list[object]:
            own.append(given)
            if rank == 0:
                first.append(given)
            return [first[len(own) - 1], given][: rank + 1]

        recorder = Recorder(tmp_path / str(rank), steps=1, every=1)
        parts = Parts(recorder, rank, gather)
        parts.next_step()
        parts.add("loss", "loss", np.array(value))
        parts.add("gradient", "same", np.ones(2))
        parts.add("gradient", "own", np.full(2, value))
        parts.next_step()
        assert recorder.files["step-000000"] == (
            ["gradient/own@rank1"] if rank else ["loss/loss", "gradient/same", "gradient/own"]
        )


def test_of_nested_modules_the_outermost_is_run_again() -> None:
    assert outermost("b*", ["b", "b.0", "b.0.fc", "bc"], ".") == ["b", "bc"]
    with pytest.raises(UsageError, match=r"checkpointing = 'c': the model has no such module"):
        outermost("c", ["bb"], ".")


def test_what_a_side_is() -> None:
    side = TorchSide(name="a", strategy="ddp", devices=2, accumulate=3)
    assert (side.framework, side.ranks, side.parts, side.is_compiled) == ("torch", 2, 6, False)
    assert side.needs_training == ["accumulate", "strategy"]
    assert KerasSide(graph=True).is_compiled and TorchSide(compile="eager").is_compiled
