"""The tests of torch_impl and of keras_impl, each in a process of its own: the frameworks do not mix."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parity.runtime.environment import environment

TESTS = Path(__file__).parent
SIDES = ("torch", "keras")


@pytest.fixture(scope="module")
def sides(tmp_path_factory) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """Both at the same time: each uses one core."""
    # The frameworks warn of their own affairs: here warnings are no errors.
    flags = ["-q", "-W", "default", "-p", "no:cacheprovider"]
    started = {}
    for side in SIDES:
        folder = tmp_path_factory.mktemp(side)
        arguments = [sys.executable, "-m", "pytest", *flags, str(TESTS / f"{side}_impl")]
        variables = {**environment(folder), "PARITY_SIDE": side, "PARITY_DEVICES": "cpu:4"}
        with (folder / "output").open("w") as output:
            started[side] = subprocess.Popen(arguments, cwd=TESTS.parent, env=variables, stdout=output)
        started[side].output = folder / "output"
    yield started
    for process in started.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("side", SIDES)
def test_a_side(side, sides):
    assert sides[side].wait(timeout=400) == os.EX_OK, sides[side].output.read_text()
