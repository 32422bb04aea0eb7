"""The advice on a user's own pair, from its recorded training on one device."""

import json
import shutil
from pathlib import Path

import pytest

from parity.advise.__main__ import main
from parity.core.errors import BackendError, UsageError

TORCH = """
from torch import nn


def build():
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 5))
"""
KERAS = """
import keras


def build():
    layers = keras.layers
    return keras.Sequential(
        [layers.Dense(32), layers.LayerNormalization(epsilon=1e-5), layers.Activation("silu"), layers.Dense(5)]
    )
"""
PAIR = """
[pair]
name = "advised"
torch = "advised_torch:build"
keras = "advised_keras:build"
[inputs.x]
shape = [8, 16]
[train]
optimizer = "adam"
"""
WEIGHTS = 4 * (16 * 32 + 32 + 32 + 32 + 32 * 5 + 5)


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    (tmp_path / "advised_torch.py").write_text(TORCH)
    (tmp_path / "advised_keras.py").write_text(KERAS)
    (tmp_path / "advised.toml").write_text(PAIR)
    return tmp_path / "advised.toml"


@pytest.mark.slow
def test_a_pair_is_advised_on_by_its_trace(pair, tmp_path, capsys):
    file = tmp_path / "advice.json"
    assert main([f"--pair={pair}", "--devices=2xH200", "--seconds=0.1", f"--json={file}"]) == 0
    (advice,) = json.loads(file.read_text())["advice"]
    torch = {each["strategy"]: each for each in advice["choices"] if each["side"] == "torch"}
    assert torch["ddp"]["sent"] == {"all_reduce": WEIGHTS}
    assert torch["single"]["memory"]["parameters"] == WEIGHTS
    assert torch["single"]["memory"]["optimizer"] == 2 * WEIGHTS
    # Three modules with weights, of which the first two make the first stage: 32 features go on from there.
    assert torch["send_recv"]["sent"] == {"activation": 4 * 8 * 32, "gradient": 4 * 8 * 32}
    assert torch["fsdp"]["memory"]["parameters"] < WEIGHTS
    assert "cannot split" in torch["tensor_parallel"]["why_not"]
    assert "a pair's blocks are the members of its numbered lists" in capsys.readouterr().out


@pytest.mark.slow
def test_a_pair_that_cannot_be_built_is_one_line(pair, tmp_path):
    shutil.move(tmp_path / "advised_keras.py", tmp_path / "elsewhere.py")
    with pytest.raises((UsageError, BackendError), match=r"pair/advised.*advised_keras"):
        main([f"--pair={pair}", "--devices=2xH200"])
