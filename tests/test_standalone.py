"""The backends started by hand: torchrun for PyTorch, TF_CONFIG for TensorFlow, as docs/traces.md says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from slow import WAIT

from parity.runtime.environment import environment, rank_variables

CASE = "simple_block/ddp@workers"
FLAGS = [f"--case={CASE}", "--devices=cpu:2", "--steps=2"]


def ended(processes: list["subprocess.Popen[str]"]) -> list[tuple[int, str]]:
    return [(process.wait(timeout=WAIT), process.communicate()[1]) for process in processes]


def start(command: list[str], variables: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_torchrun_and_tf_config_by_hand(tmp_path):
    shared = environment(tmp_path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    started = [start([*torchrun, "-m", "torch_impl", *FLAGS, f"--out={tmp_path / 'torch'}"], shared)]
    command = [sys.executable, "-m", "keras_impl", *FLAGS, f"--out={tmp_path / 'keras'}"]
    for own in rank_variables("keras", 2, tmp_path):
        assert json.loads(own["TF_CONFIG"])["cluster"]
        started.append(start(command, shared | own))
    for status, errors in ended(started):
        assert status == os.EX_OK, errors
    compare = [sys.executable, "-m", "parity.compare", "--strict", str(tmp_path / "torch"), str(tmp_path / "keras")]
    compared = subprocess.run(compare, capture_output=True, text=True, timeout=WAIT)
    assert compared.returncode == os.EX_OK, compared.stdout + compared.stderr


def test_the_wrong_number_of_processes_is_one_clear_line(tmp_path: Path):
    command = [sys.executable, "-m", "torch_impl", *FLAGS, f"--out={tmp_path}"]
    refused = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=WAIT)
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [f"torch_impl: {CASE} on cpu:2 needs 2 processes of torch_impl, received 1"]
