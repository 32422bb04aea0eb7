"""benchmarks/strategies.py: the strategies written by hand train as the project's own do."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "strategies.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("benchmarks_strategies", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STRATEGIES = (
    "single",
    "round_robin",
    "data_parallel",
    "ddp",
    "all_reduce",
    "send_recv",
    "pipeline",
    "hybrid",
    "branch_parallel",
    "tensor_parallel",
)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("side", ["torch", "keras"])
def test_a_strategy_by_hand_trains_as_ours_does(script, side, strategy, tmp_path):
    with script.lanes(script.chosen_case(f"transformer/{strategy}"), side, tmp_path) as (by_hand, ours):
        assert script.differing(by_hand, ours) == ""


class Trained:
    """A training whose one rank began with `first` and has `last` after the steps that are checked."""

    def __init__(self, folder, first, last, rank="0.npz"):
        folder.mkdir()
        states = {f"0/{i}": array for i, array in enumerate(first)} | {f"1/{i}": array for i, array in enumerate(last)}
        np.savez(folder / rank, **states)
        self._folder = folder

    def states(self):
        return {path.name: np.load(path) for path in self._folder.glob("*.npz")}


def test_the_order_of_the_parameters_does_not_matter(script, tmp_path):
    a, b = np.float32([1, 2]), np.float32([3, 4])
    one = Trained(tmp_path / "one", [a, b], [a + 1, b + 1])
    assert script.differing(one, Trained(tmp_path / "two", [b, a], [b + 1, a + 1])) == ""


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ([np.float32([1.9, 3])], "1.0e-01 apart after a change of 1.0e+00"),
        ([np.float32([np.nan, 3])], "nan apart"),
        ([np.float32([2])], "other shapes"),
    ],
)
def test_two_different_trainings_are_told_apart(script, tmp_path, last, said):
    first = [np.float32([1, 2])]
    one = Trained(tmp_path / "one", first, [np.float32([2, 3])])
    assert said in script.differing(one, Trained(tmp_path / "two", first, last))


def test_trainings_of_other_ranks_are_told_apart(script, tmp_path):
    first = [np.float32([1, 2])]
    one = Trained(tmp_path / "one", first, first)
    assert "ranks" in script.differing(one, Trained(tmp_path / "two", first, first, rank="1.npz"))


def test_two_trainings_that_change_nothing_do_not_agree(script, tmp_path):
    first = [np.float32([1, 2])]
    one, other = (Trained(tmp_path / name, first, first) for name in ("one", "two"))
    assert "nothing was trained" in script.differing(one, other)


def test_a_glob_without_a_case_is_one_line(script, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["strategies.py", "--case=nothing"])
    with pytest.raises(SystemExit, match="no case matches"):
        script.main()
