"""The check for machines with GPUs: rehearsed on the CPU, and run where there is a GPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parity.runtime.environment import environment
from parity.runtime.resources import available

ROOT = Path(__file__).parents[1]
SEEN = available({"torch": "", "keras": ""})


def check(out: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py"), f"--out={out}", *flags]
    return subprocess.run(command, env=environment(out, SEEN.kind), capture_output=True, text=True, timeout=540)


@pytest.mark.slow
def test_a_rehearsal_on_the_cpu(tmp_path):
    ended = check(tmp_path, "--devices=cpu:2", "--case=two_linear/ddp")
    assert ended.returncode == os.EX_OK, ended.stdout + ended.stderr
    rows = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [(row["check"], row["sides"], row["verdict"]) for row in rows] == [
        ("two_linear/ddp@float32", "torch cpu, keras cpu", "match"),
        ("two_linear/ddp@bfloat16", "torch cpu, keras cpu", "match"),
    ]
    assert "two_linear/ddp@bfloat16" in (tmp_path / "report.html").read_text()


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a GPU")
def test_without_a_gpu_nothing_is_called_done(tmp_path):
    ended = check(tmp_path)
    assert ended.returncode == 3
    assert ended.stderr.startswith("gpu_check: no GPU that")


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.skipif(SEEN.kind == "cpu", reason="no GPU here that both frameworks see")
def test_on_gpus(tmp_path):
    ended = check(tmp_path, "--case=two_linear/*")
    assert ended.returncode == os.EX_OK, ended.stdout + ended.stderr
