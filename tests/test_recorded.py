"""Traces recorded by two separate runs give the verdict of the direct one, and are the same bytes again."""

import filecmp
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from slow import WAIT

pytestmark = pytest.mark.slow
CASE = "residual_block/single@adam"
SMALL = ["--set", "model.out_channels=4", "--set", "data.size=16", "--set", "data.batch=4", "--steps=3"]


def program(name: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"parity.{name}", *flags], capture_output=True, text=True, timeout=WAIT
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """Two recordings of each backend: one/ and two/."""
    folder = tmp_path_factory.mktemp("recorded")
    for backend in ("torch", "keras"):
        for number in ("one", "two"):
            out = folder / number / backend
            ended = program("record", f"--backend={backend}", f"--case={CASE}", f"--out={out}", *SMALL)
            assert ended.returncode == 0, ended.stderr
    return folder


def verdict(*flags: str) -> dict:
    """The result of the only case, without what tells of the run itself."""
    ended = program("compare", "--json=-", *flags)
    report = msgspec.json.decode(ended.stdout)
    assert ended.returncode == 0, ended.stderr
    [case] = report["cases"]
    return {key: value for key, value in case.items() if key not in ("seconds", "command")}


def test_two_recordings_give_the_verdict_of_the_direct_run(recorded):
    direct = verdict(f"--case={CASE}", *SMALL)
    assert verdict(str(recorded / "one" / "torch"), str(recorded / "one" / "keras")) == direct
    assert verdict(str(recorded / "one" / "keras"), str(recorded / "two" / "torch")) == direct


@pytest.mark.parametrize("backend", ["torch", "keras"])
def test_a_second_recording_is_the_same_bytes(recorded, backend):
    one, two = recorded / "one" / backend, recorded / "two" / backend
    files = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    assert len(files) == 3 * 5 + 1  # low, high, witness: initial, three steps, evaluation; the manifest
    assert filecmp.cmpfiles(one, two, files, shallow=False) == (files, [], [])


def test_two_traces_of_one_backend_are_reference_and_candidate(recorded):
    case = verdict(str(recorded / "one" / "torch"), str(recorded / "two" / "torch"))
    assert case["verdict"] == "match"
    assert case["checks"]["parameter"]["worst_bits"] is None  # equal, nothing to judge by bits


def test_keras_against_the_torch_witness_is_not_needed(recorded):
    assert verdict(str(recorded / "one" / "keras"), str(recorded / "two" / "keras"))["verdict"] == "match"
