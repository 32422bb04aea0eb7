"""A part of the self-test, as a program and with the real frameworks: the whole is benchmarks/selftest.py."""

import re
import subprocess
import sys

# Some of every room of the catalogue, on few cases. Adam's are the README's example (tests/test_readme.py).
FAULTS = [
    "*:layer_norm.epsilon",
    "keras:layer_norm.epsilon_in_float32",
    "keras:attention.packing",
    "torch:transformer.norm_order",
    "*:embedding.padding_idx",
    "*:relu.slope",
    "*:mse.reduction",
    "torch:update.frozen",
    "keras:matmul.tf32_in_float32",
    "keras:initialisation",
    "*:sampler.epoch",
    "*:send_recv.gradient",
    "keras:placement.layer",
    "keras:batch_norm.running_*",
]


def test_planted_faults_are_caught_placed_and_named_and_clean_runs_are_not():
    command = [sys.executable, "-m", "parity.selftest", "--clean=3", *(f"--fault={fault}" for fault in FAULTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) faults: (\d+) caught, (\d+) placed, (\d+) named", done.stdout)
    faults, caught, placed, named = map(int, found.groups())
    assert faults == caught == placed >= 17
    assert named >= 0.9 * faults
    assert ": 0 false alarms" in done.stdout
    assert re.search(r"np.allclose on the outputs: (\d+) caught", done.stdout)
