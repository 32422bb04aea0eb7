"""Whether there is room: what is certain to be written and held, against what there is, before anything runs."""

import json
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import msgspec
import pytest
from slow import WAIT
from synthetic import record, small_case

from parity.config import cases
from parity.config.pair import Pair
from parity.core.errors import UsageError
from parity.runtime import resources
from parity.runtime.survey import Module, Seen, Survey, Weight

ROOT = Path(__file__).parents[2]
Usage = namedtuple("Usage", "total used free")
BIG = cases.resolve("linear_stack/single", {"model": {"layers": 2, "width": 4096}, "data": {"batch": 2048}, "steps": 5})


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(resources.shutil, "disk_usage", lambda folder: Usage(count, 0, count))


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_what_a_recording_took_would_have_been_enough(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And half of it would not: all tensors of this network are weights, or what its layers return."""
    case = small_case(steps=steps, model={"kind": "simple_block", "inputs": 64, "hidden": 64, "outputs": 64})
    record(tmp_path, "torch", case)
    took = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    free(monkeypatch, took)
    resources.check(case, resources.of_case(case), tmp_path, ["low", "high", "witness"])
    free(monkeypatch, took // 2)
    with pytest.raises(UsageError, match=r"its traces take at least .* free; name a folder on a larger disk \(TMPDIR"):
        resources.check(case, resources.of_case(case), tmp_path, ["low", "high", "witness"])


def test_the_figures_of_a_large_case_are_those_of_its_shapes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """33.6 million weights and 16.8 million activations, through five steps and five runs."""
    free(monkeypatch, 0)
    with pytest.raises(UsageError, match=r"at least 10\.\d GB"):
        resources.check(BIG, resources.of_case(BIG), tmp_path / "not" / "there")


def test_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free(monkeypatch, 1 << 60)
    monkeypatch.setattr(resources, "memory", lambda: 1 << 30)
    with pytest.raises(UsageError, match=r"takes at least 1\.3 GB of memory, but this machine has only 1\.1 GB"):
        resources.check(BIG, resources.of_case(BIG), tmp_path)
    resources.check(small_case(), resources.of_case(small_case()), tmp_path)


def test_a_pair_is_as_large_as_its_survey_says() -> None:
    weights = [
        Weight(name=name, shape=(3, 4), dtype="float32", module="a", role="weight", trainable=trained)
        for name, trained in (("a.weight", True), ("a.frozen", False))
    ]
    weights.append(msgspec.structs.replace(weights[1], name="a.mask", constant=True))
    outputs = [Seen(key=key, module=key, shape=(2, 3)) for key in ("a", "whole")]
    survey = Survey(
        side="torch",
        modules=[Module(path="a", kind="linear")],
        weights=weights,
        called=["a"],
        outputs=outputs,
        arguments={"a": [(2, 4)]},
    )
    assert resources.of_pair(survey) == resources.Size(weights=24, trained=12, activations=6)


def test_a_pair_of_which_one_side_fits_is_run_in_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In float64: 1 GB of weights, and without backward = false as much of gradients."""
    free(monkeypatch, 1 << 60)
    inputs = {"x": {"shape": [1, 2]}}
    pair, size = {"torch": "a:b", "keras": "a:b", "inputs": inputs}, resources.Size(1 << 27, 1 << 27, 0)
    whole, forward = (
        msgspec.structs.replace(small_case(), model=msgspec.convert(pair | {"backward": backward}, Pair))
        for backward in (True, False)
    )
    for case, memory, in_turn in ((whole, 8, False), (whole, 7, True), (forward, 4, False), (forward, 3, True)):
        monkeypatch.setattr(resources, "memory", lambda memory=memory: memory << 30)
        assert resources.in_turn(case, size) == in_turn
        resources.check(case, size, tmp_path, summarises=True)
    monkeypatch.setattr(resources, "memory", lambda: 1 << 29)
    with pytest.raises(UsageError, match=r"takes at least 1\.1 GB of memory"):
        resources.check(forward, size, tmp_path, summarises=True)


def test_what_does_not_fit_is_an_error_of_its_own_before_anything_runs(tmp_path: Path) -> None:
    flags = ["--case=linear_stack/single", "--set", "model.width=9000000"]
    flags += [f"--{side}-python=/nonexistent/python" for side in ("torch", "keras")]
    command = [sys.executable, "-m", "parity.compare", *flags, "--json=-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, cwd=ROOT)
    (case,) = json.loads(done.stdout)["cases"]
    assert (done.returncode, case["verdict"], case["error"]) == (2, "error", "usage")
    assert "its traces take at least" in case["reason"] and "TMPDIR" in case["reason"]
