"""The project as users have it: installed in a site-packages folder, called from a folder of the user's own.

Every place that is named is in the user's files.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from slow import WAIT

ROOT = Path(__file__).parents[1]
X = "--input=x=float32[8,16]"

SCALED = """\
import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).to("cuda:0")
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.scaler = torch.amp.GradScaler("cuda")
    return model


def step(model, inputs):
    model.optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = model(inputs["x"].to("cuda:0")).float().square().mean()
    model.scaler.scale(loss).backward()
    model.scaler.step(model.optimizer)
    model.scaler.update()


def step_kept(model, inputs):
    loss = model(inputs["x"].to("cuda:0")).square().mean()
    loss.backward()
    model.optimizer.step()
    return loss.item()
"""
FITTED = """\
import keras
import tensorflow as tf


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.layers.Dense(8)
        self.head = keras.layers.Dense(4)

    def call(self, x):
        return self.head(tf.stop_gradient(self.body(x)))


def build():
    model = Net()
    model.compile("sgd", "mse")
    return model


def step(model, inputs):
    with tf.device("/GPU:0"):
        logs = model.train_on_batch(inputs["x"], tf.zeros((8, 4)))
    return float(tf.reduce_sum(model(inputs["x"])))
"""
PAIR = """\
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return self.helper(x)

    def helper(self, x):
        return x.reshape(3, 3)


def build():
    return Net()
"""
KERAS = """\
import keras


class Net(keras.Model):
    def call(self, x):
        return self.helper(x)

    def helper(self, x):
        return keras.ops.reshape(x, (3, 3))


def build():
    return Net()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site-packages of an environment of its own with the project's packages; the others are this one's."""
    root = tmp_path_factory.mktemp("installed")
    venv.create(root, with_pip=False)
    folder = Path(sysconfig.get_path("purelib", vars={"base": str(root)}))
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (folder / "others.pth").write_text("\n".join(others))
    for package in ("parity", "torch_impl", "keras_impl"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the installed project, from the user's folder."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(site.parents[2] / "bin" / "python"), "-m", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=WAIT)


def findings(site: Path, folder: Path, *flags: str) -> list[dict]:
    ended = run(site, folder, "parity.doctor", *flags, X, "--json=-", "--devices=cpu:1")
    assert ended.returncode in (0, 1), ended.stderr
    return json.loads(ended.stdout)["findings"]


@pytest.mark.slow
def test_torch_places_are_the_users(site, tmp_path):
    (tmp_path / "train.py").write_text(SCALED)
    assert findings(site, tmp_path, "--torch=train:build", "--step=train:step") == []
    faulty = findings(site, tmp_path, "--torch=train:build", "--step=train:step_kept")
    places = {each["id"]: each["source"] for each in faulty}
    assert places == {"learning.not_cleared": "train.py:23", "sync.item": "train.py:25"}


@pytest.mark.slow
def test_a_program_that_is_installed_itself_is_the_users(site, tmp_path):
    package = site / "their_training"
    package.mkdir()
    (package / "__init__.py").write_text(SCALED)
    faulty = findings(site, tmp_path, "--torch=their_training:build", "--step=their_training:step_kept")
    assert {each["source"].rpartition(":")[0] for each in faulty} == {str(package / "__init__.py")}


@pytest.mark.slow
def test_keras_places_are_the_users(site, tmp_path):
    (tmp_path / "train.py").write_text(FITTED)
    faulty = findings(site, tmp_path, "--keras=train:build", "--step=train:step")
    places = {each["id"]: each["source"] for each in faulty}
    assert places["learning.no_gradient"] == "train.py:12"
    assert places["sync.item"] == "train.py:24"
    assert {place.partition(":")[0] for place in places.values()} == {"train.py"}


@pytest.mark.slow
def test_a_pairs_error_names_the_users_line(site, tmp_path):
    (tmp_path / "torch_net.py").write_text(PAIR)
    (tmp_path / "keras_net.py").write_text(KERAS)
    ended = run(site, tmp_path, "parity.compare", "--torch=torch_net:build", "--keras=keras_net:build", X)
    assert ended.returncode != 0
    said = ended.stdout + ended.stderr
    assert "torch_net.py:9" in said or "keras_net.py:9" in said, said
    assert "site-packages" not in said and "Traceback" not in said, said
