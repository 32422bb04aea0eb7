"""The tests of torch_impl and of keras_impl, each in a process of its own: the frameworks do not mix."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.runtime.environment import environment

TESTS = Path(__file__).parent


@pytest.mark.parametrize("side", ["torch", "keras"])
def test_a_side(side, tmp_path):
    # The frameworks warn of their own affairs: here warnings are no errors.
    flags = ["-q", "-W", "default", "-p", "no:cacheprovider"]
    arguments = [sys.executable, "-m", "pytest", *flags, str(TESTS / f"{side}_impl")]
    variables = {**environment(tmp_path), "PARITY_SIDE": side}
    ended = subprocess.run(arguments, cwd=TESTS.parent, env=variables, capture_output=True, text=True, timeout=300)
    assert ended.returncode == os.EX_OK, ended.stdout
