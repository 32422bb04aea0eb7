"""A part of the self-test, as a program and with the real frameworks: the whole is benchmarks/selftest.py."""

import re
import subprocess
import sys

import pytest

# Some of every room of the catalogue, on few cases.
FAULTS = [
    "*:layer_norm.epsilon",
    "keras:layer_norm.epsilon_in_float32",
    "keras:attention.*",
    "torch:transformer.*",
    "*:embedding.padding_idx",
    "*:relu.*",
    "*:mse.reduction",
    "keras:gradient.s*",
    "torch:update.frozen",
    "*:adam.*",
    "keras:matmul.*",
    "keras:initialisation",
    "*:sampler.epoch",
    "*:shard.rotated",
    "*:send_recv.gradient",
    "keras:placement.*",
    "keras:batch_norm.*",
]


@pytest.mark.slow
def test_planted_faults_are_caught_placed_and_named_and_clean_runs_are_not():
    command = [sys.executable, "-m", "parity.selftest", "--clean=6", *(f"--fault={fault}" for fault in FAULTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) faults: (\d+) caught, (\d+) placed, (\d+) named", done.stdout)
    faults, caught, placed, named = map(int, found.groups())
    assert faults == caught == placed >= 45
    assert named >= 0.9 * faults
    assert ": 0 false alarms" in done.stdout
    assert re.search(r"np.allclose on the outputs: (\d+) caught", done.stdout)
