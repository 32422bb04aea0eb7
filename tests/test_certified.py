"""A port that is judged by a certificate of its reference: a classifier of bags of words, trained by steps of its own.

The bags have different numbers of words. Gradients of micro-batches are accumulated, as in a bug of 2024
(huggingface.co/blog/gradient_accumulation): a mean of means over micro-batches of unequal numbers of words is not the
mean over all words.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slow import WAIT

from parity import certify
from parity.asserts import Session
from parity.core.errors import UsageError
from parity.report import terminal
from parity.results import CaseResult
from parity.trace import certificate

TORCH = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(300, 32)
        self.hidden = nn.Linear(32, 160)
        self.norm = nn.LayerNorm(160)
        self.out = nn.Linear(160, 300)

    def forward(self, ids):
        return self.out(self.norm(F.relu(self.hidden(self.embed(ids)))))

def build():
    return Model()

def step(model, optimizer, batch):
    ids, words = batch["ids"], batch["target"].double()
    optimizer.zero_grad()
    total = 0.0
    for part, counted in zip(ids.chunk(2), words.chunk(2)):
        logits = model(part).flatten(0, 1)
        each = F.cross_entropy(logits, part.flatten().long(), reduction="none")
        loss = (each * counted.flatten().to(each.dtype)).sum() / words.sum().to(each.dtype)
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    return total
"""
KERAS = """
import keras
import tensorflow as tf
from keras import layers

def make(epsilon=1e-5):
    ids = keras.Input((12,), name="ids", dtype="int32")
    x = layers.Embedding(300, 32, name="embed")(ids)
    x = layers.Dense(160, name="hidden")(x)
    x = keras.ops.relu(x)
    x = layers.LayerNormalization(epsilon=epsilon, name="norm")(x)
    return keras.Model(ids, layers.Dense(300, name="out")(x))

def build():
    return make()

def epsilon():
    return make(epsilon=1e-3)

def accumulate(model, optimizer, batch, weigh):
    ids, words = batch["ids"], tf.cast(batch["target"], keras.config.floatx())
    total, sums = 0.0, None
    for part, counted in zip(tf.split(ids, 2), tf.split(words, 2)):
        with tf.GradientTape() as tape:
            logits = model(part, training=True)
            each = keras.ops.sparse_categorical_crossentropy(part, logits, from_logits=True)
            loss = weigh(each, counted, words)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = [tf.convert_to_tensor(each) for each in gradients]
        sums = gradients if sums is None else [a + b for a, b in zip(sums, gradients)]
        total = total + loss
    optimizer.apply(sums, model.trainable_variables)
    return total

def step(model, optimizer, batch):
    return accumulate(model, optimizer, batch, lambda each, part, all: tf.reduce_sum(each * part) / tf.reduce_sum(all))

def step_of_means(model, optimizer, batch):
    mean = lambda each, part, all: tf.reduce_sum(each * part) / tf.reduce_sum(part) / 2
    return accumulate(model, optimizer, batch, mean)
"""
PAIR = """
[pair]
name = "words"
torch = "words_torch:build"
keras = "words_keras:build"
[inputs.ids]
shape = [4, 12]
dtype = "int32"
range = [1, 300]
[inputs.target]
npz = "words.npz"
dtype = "float32"
[train]
steps = 2
torch_step = "words_torch:step"
keras_step = "words_keras:step"
"""
MAKE_WORDS = "import numpy as np; np.savez('words.npz', target=(np.arange(12) < np.array([[12], [9], [3], [1]])) * 1.0)"


@pytest.fixture(scope="module")
def folder(forks: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A port's folder with the certificate of its reference, whose own file is gone."""
    folder = tmp_path_factory.mktemp("words")
    for name, text in {"words_torch.py": TORCH, "words_keras.py": KERAS, "words.toml": PAIR}.items():
        (folder / name).write_text(text)
    subprocess.run([sys.executable, "-c", MAKE_WORDS], cwd=folder, check=True)
    assert certify.main([f"--pair={folder / 'words.toml'}", f"--out={folder / 'words.parity'}"]) == 0
    (folder / "words_torch.py").unlink()
    return folder


@pytest.fixture(scope="module")
def session(forks: None) -> Iterator[Session]:
    session = Session()
    yield session
    session.close()


def test_a_right_port_matches(folder: Path, session: Session) -> None:
    result = session.certified("words_keras:build", folder / "words.parity", "keras")
    assert result.verdict == "match", terminal.text(result)
    assert any("by their summaries" in line for line in result.not_compared)
    assert any("need both frameworks: python -m parity.compare --pair=" in line for line in result.not_compared)
    assert certificate.read(folder / "words.parity")[0].summarised > 0
    assert (folder / "words.parity").stat().st_size < 4_000_000


def test_another_epsilon_is_placed(folder: Path, session: Session) -> None:
    result = session.certified("words_keras:epsilon", folder / "words.parity", "keras")
    assert result.verdict == "diverged"
    assert result.first_divergence and result.first_divergence.name == "norm", terminal.text(result)


def compared(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "parity.compare", "--certificate=words.parity", *flags]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT)


@pytest.mark.slow
def test_a_mean_of_means_is_not_the_mean(folder: Path) -> None:
    """The step is Keras's half of the pair's file, beside the certificate of the other half."""
    for name, step in {"right.toml": "step", "wrong.toml": "step_of_means"}.items():
        (folder / name).write_text(PAIR.replace("words_keras:step", f"words_keras:{step}"))
    right, wrong = (compared(folder, f"--pair={name}") for name in ("right.toml", "wrong.toml"))
    assert (right.returncode, wrong.returncode) == (0, 1), right.stdout + wrong.stdout
    assert "step 0: gradient of" in wrong.stdout or "step 0: loss" in wrong.stdout


@pytest.mark.slow
def test_a_file_of_another_pair_is_refused(folder: Path) -> None:
    (folder / "longer.toml").write_text(PAIR.replace("steps = 2", "steps = 3"))
    ended = compared(folder, "--pair=longer.toml")
    assert ended.returncode == 2
    assert "is of another pair or of other settings than longer.toml: model.train.steps is 2 against 3" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_reference_is_judged_by_its_own_past(folder: Path, session: Session) -> None:
    """With a module of the same model, and of one that leaves out the norm."""
    (folder / "later_torch.py").write_text(TORCH)
    same = session.certified("later_torch:build", folder / "words.parity", "torch")
    assert same.verdict == "error" and "words_torch" in same.reason  # its step is that of the file that is gone
    shutil.copyfile(folder / "later_torch.py", folder / "words_torch.py")
    again = session.certified("later_torch:build", folder / "words.parity", "torch")
    assert again.verdict == "match", terminal.text(again)
    (folder / "other_torch.py").write_text(TORCH.replace("nn.LayerNorm(160)", "nn.LayerNorm(160, eps=1e-6)"))
    other: CaseResult = session.certified("other_torch:build", folder / "words.parity", "torch")
    assert other.verdict == "diverged" and other.first_divergence and other.first_divergence.name == "norm"


def test_a_framework_that_there_is_not(folder: Path, session: Session) -> None:
    with pytest.raises(UsageError, match="framework is 'jax', expected one of torch, keras"):
        session.certified("words_keras:build", folder / "words.parity", "jax")
