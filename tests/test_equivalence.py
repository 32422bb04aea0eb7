"""Sides of one model: two ways to run it that are the same computation match, and each planted fault diverges."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import parity
from parity import asserts
from parity.asserts import Session
from parity.pairs import file
from parity.results import CaseResult

TORCH = '''
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(8, 8), norm(8), nn.Dropout(0.25)

    def forward(self, x):
        return x + self.dropout(torch.tanh(self.norm(self.linear(x))))


class Kinked(nn.Module):
    """A ReLU that is another one where it is compiled."""

    def forward(self, x):
        return x.clamp(min=1e-3 if torch.compiler.is_compiling() else 0.0)


class Island(nn.Module):
    """What half a model computes in float32 on purpose."""

    def forward(self, x):
        return torch.softmax(x.float(), -1).to(x.dtype)


class Attended(nn.Module):
    """Two positions of half the features, which attend to each other with dropout."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.25, batch_first=True)

    def forward(self, x):
        return self.encoder(x.unflatten(1, (2, 4))).flatten(1)


def attention():
    return nn.Sequential(Attended(), nn.Linear(8, 3))


def layers():
    return nn.Sequential(Block(nn.LayerNorm), Block(nn.LayerNorm), nn.Linear(8, 3))


def batches():
    return nn.Sequential(Block(nn.BatchNorm1d), nn.Linear(8, 3))


def kinked():
    return nn.Sequential(nn.Linear(8, 8), Kinked(), nn.Linear(8, 3))


def island():
    return nn.Sequential(nn.Linear(8, 8), Island(), nn.Linear(8, 3))


def small():
    return nn.Sequential(nn.Linear(8, 8), nn.ELU(), nn.Dropout(0.25), nn.Linear(8, 3))


def ungraphed():
    model = small()
    model.forward = torch.compiler.disable(model.forward)
    return model


def decomposed():
    """A model one of whose ops is decomposed wrongly by inductor."""
    from torch._inductor import decomposition

    elu = torch.ops.aten.elu.default
    decomposition.decompositions[elu] = lambda x, *_: torch.where(x > 0, x, 1.001 * torch.expm1(x))
    return small()


def loss_of(model, batch):
    return nn.functional.mse_loss(model(batch["x"]), batch["target"])


def whole(model, optimizer, batch):
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    return loss


def unreduced(model, optimizer, batch):
    optimizer.zero_grad()
    with model.no_sync():
        loss = loss_of(model, batch)
        loss.backward()
    optimizer.step()
    return loss


def pieces(sizes, model, optimizer, batch):
    """Average the losses of pieces of the batch, of whatever sizes."""
    optimizer.zero_grad()
    for x, target in zip(batch["x"].split(sizes), batch["target"].split(sizes)):
        (loss_of(model, {"x": x, "target": target}) / len(sizes)).backward()
    optimizer.step()


def halves(model, optimizer, batch):
    pieces([4, 4], model, optimizer, batch)


def unequal(model, optimizer, batch):
    pieces([5, 3], model, optimizer, batch)
'''
KERAS = '''
import keras
import tensorflow as tf
from keras import layers as of


class Kinked(of.Layer):
    """A ReLU that is another one in a graph."""

    def call(self, x):
        return tf.maximum(x, 0.0 if tf.executing_eagerly() else 1e-3)


def block(norm):
    x = keras.Input((8,))
    y = of.Dropout(0.25)(of.Activation("tanh")(norm(of.Dense(8)(x))))
    return keras.Model(x, of.Add()([x, y]))


def tower(*blocks):
    x = keras.Input((8,))
    return keras.Model(x, of.Dense(3)(keras.Sequential(blocks, name="blocks")(x)))


def layers():
    return tower(block(of.LayerNormalization(epsilon=1e-5)), block(of.LayerNormalization(epsilon=1e-5)))


def batches(synchronized=False):
    return tower(block(of.BatchNormalization(synchronized=synchronized)))


def synchronised():
    return batches(synchronized=True)


def kinked():
    return tower(of.Dense(8), Kinked())


def halves(model, optimizer, batch):
    sums = [tf.zeros_like(variable) for variable in model.trainable_variables]
    for x, target in zip(tf.split(batch["x"], 2), tf.split(batch["target"], 2)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - target) ** 2) / 2
        sums = [a + b for a, b in zip(sums, tape.gradient(loss, model.trainable_variables))]
    optimizer.apply(sums, model.trainable_variables)


def own(model, optimizer, batch):
    """Divide the loss by the samples of all replicas, as MirroredStrategy adds the gradients up."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(batch["x"], training=True) - batch["target"]) ** 2) / (3 * 8)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


def local(model, optimizer, batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(batch["x"], training=True) - batch["target"]) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss
'''
PAIR = """
[pair]
{builders}
[inputs.x]
shape = [8, 8]
[train]
optimizer = "adamw"
learning_rate = 0.01
steps = 2
{train}
[sides.accumulated]
accumulate = 4
[sides.checkpointed]
checkpointing = "[01]"
[sides.compiled]
compile = "aot_eager"
[sides.inductor]
compile = "inductor"
[sides.ddp]
strategy = "ddp"
devices = 2
[sides.both]
strategy = "ddp"
devices = 2
accumulate = 2
[sides.reduced]
strategy = "ddp"
devices = 2
step = "sides_torch:whole"
[sides.unreduced]
strategy = "ddp"
devices = 2
step = "sides_torch:unreduced"
[sides.halves]
step = "sides_torch:halves"
[sides.unequal]
step = "sides_torch:unequal"
[sides.elsewhere]
env = {{ SOME_NAME = "value" }}
[sides.graph]
framework = "keras"
graph = true
[sides.xla]
framework = "keras"
xla = true
[sides.keras_accumulated]
framework = "keras"
accumulate = 4
[sides.keras_halves]
framework = "keras"
step = "sides_keras:halves"
[sides.keras_checkpointed]
framework = "keras"
checkpointing = "blocks"
[sides.fsdp]
strategy = "fsdp"
devices = 2
[sides.keras_mirrored]
framework = "keras"
strategy = "mirrored"
devices = 2
[sides.keras_both]
framework = "keras"
strategy = "mirrored"
devices = 2
accumulate = 2
[sides.keras_own]
framework = "keras"
strategy = "mirrored"
devices = 2
step = "sides_keras:own"
[sides.keras_local]
framework = "keras"
strategy = "mirrored"
devices = 2
step = "sides_keras:local"
"""


@pytest.fixture(scope="module")
def session(forks: None) -> Iterator[Session]:
    kept = Session()
    yield kept
    kept.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sides")
    (made / "sides_torch.py").write_text(TORCH)
    (made / "sides_keras.py").write_text(KERAS)
    return made


def written(folder: Path, model: str, sides: str, train: str = "") -> Path:
    """A pair's file with the builders of those frameworks that the sides need."""
    of_keras = ("keras", "graph", "xla")
    frameworks = {"keras" if name.startswith(of_keras) else "torch" for name in sides.split(",")}
    builders = "\n".join(f'{framework} = "sides_{framework}:{model}"' for framework in sorted(frameworks))
    path = folder / f"{model}.toml"
    path.write_text(PAIR.format(builders=builders, train=train))
    return path


def compared(session: Session, folder: Path, model: str, sides: str, train: str = "") -> list[CaseResult]:
    return session.equivalent(file.load(written(folder, model, sides, train), sides=sides.split(",")))


OWN = 'torch_step = "sides_torch:whole"'
SAME = [
    pytest.param("layers", "torch,accumulated,checkpointed,ddp,both", "", marks=pytest.mark.slow),
    pytest.param("layers", "torch,compiled,elsewhere", "", marks=pytest.mark.slow),
    pytest.param("batches", "torch,compiled", "", marks=pytest.mark.slow),
    pytest.param("attention", "torch,compiled", "", marks=pytest.mark.slow),
    pytest.param("small", "torch,inductor", "", marks=pytest.mark.slow),
    pytest.param("island", "torch,compiled,checkpointed", "", marks=pytest.mark.slow),
    ("layers", "torch,reduced,halves", OWN),
    pytest.param("layers", "keras,keras_mirrored,keras_own", "", marks=pytest.mark.slow),
    pytest.param("synchronised", "keras,keras_mirrored", "", marks=pytest.mark.slow),
    pytest.param("layers", "ddp,fsdp,keras_mirrored,keras_both", "", marks=pytest.mark.slow),
    pytest.param("layers", "keras,graph,keras_accumulated,keras_checkpointed", "", marks=pytest.mark.slow),
    pytest.param("layers", "keras,xla,keras_halves", "", marks=pytest.mark.slow),
    pytest.param("batches", "graph,xla,keras", "", marks=pytest.mark.slow),
    pytest.param("layers", "accumulated,graph,keras_accumulated", "", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("model", "sides", "train"), SAME)
def test_the_same_computation_matches(session: Session, folder: Path, model: str, sides: str, train: str) -> None:
    results = compared(session, folder, model, sides, train)
    assert [(result.verdict, result.reason, result.findings) for result in results] == [("match", "", [])] * len(
        results
    )
    first, *others = sides.split(",")
    assert [result.case for result in results] == [f"pair/{model}@{first},{other}" for other in others]
    assert all("gradient" in result.checks and "update" in result.checks for result in results)
    cut = [result for result in results if result.case.endswith("accumulated") and first in ("torch", "keras")]
    assert all(result.extent and result.extent.activations.percent == 100 for result in cut)


OTHER = [
    ("batches", "torch,accumulated", "", "0.norm", "statistics of its batch"),
    pytest.param("batches", "torch,ddp", "", "0.norm", "statistics of its batch", marks=pytest.mark.slow),
    ("batches", "torch,checkpointed", "", "0.norm.running_mean", "updates the statistics a second time"),
    ("kinked", "torch,compiled", "", "(model)", "differ in nothing else"),
    pytest.param("decomposed", "torch,inductor", "", "(model)", "differ in nothing else", marks=pytest.mark.slow),
    pytest.param(
        "layers", "torch,unreduced", OWN, "2.bias", "rank 1 holds another gradient than rank 0", marks=pytest.mark.slow
    ),
    ("layers", "torch,unequal", OWN, "2.bias", "differ in nothing else"),
    ("kinked", "keras,graph", "", "(model)", "differ in nothing else"),
    pytest.param("kinked", "keras,xla", "", "(model)", "differ in nothing else", marks=pytest.mark.slow),
    pytest.param(
        "batches", "keras,keras_accumulated", "", "batch_norm", "statistics of its batch", marks=pytest.mark.slow
    ),
    pytest.param("layers", "keras,keras_local", "", "loss", "differ in nothing else", marks=pytest.mark.slow),
    pytest.param("batches", "keras,keras_mirrored", "", "batch_norm", "statistics of its", marks=pytest.mark.slow),
    pytest.param("batches", "torch,keras_mirrored", "", "0.norm", "statistics of its", marks=pytest.mark.slow),
    pytest.param("batches", "keras,keras_checkpointed", "", "moving_mean", "a second time", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("model", "sides", "train", "where", "evidence"), OTHER)
def test_another_computation_diverges(
    session: Session, folder: Path, model: str, sides: str, train: str, where: str, evidence: str
) -> None:
    (result,) = compared(session, folder, model, sides, train)
    assert result.verdict == "diverged"
    assert result.first_divergence and where in result.first_divergence.name
    assert any(evidence in cause.evidence for cause in result.causes)
    assert "sides.switch" in [cause.id for cause in result.causes]


def test_a_failing_assertion_has_the_table(session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asserts, "_session", lambda: session)
    path = written(folder, "batches", "torch,accumulated,plain")
    path.write_text(f"{path.read_text()}\n[sides.plain]\n")
    assert [result.verdict for result in parity.assert_equivalent(path, ["torch", "plain"])] == ["match"]
    with pytest.raises(AssertionError) as error:
        parity.assert_equivalent(path, ["torch", "plain", "accumulated"])
    lines = str(error.value).splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["case", "verdict"],
        ["pair/batches@torch,plain", "match"],
        ["pair/batches@torch,accumulated", "diverged"],
    ]
    assert lines[-1] == f"  again: python -m parity.compare --pair={path} --sides=torch,plain,accumulated"


@pytest.mark.slow
def test_a_model_of_which_nothing_is_compiled_is_an_error(session: Session, folder: Path) -> None:
    (result,) = compared(session, folder, "ungraphed", "torch,compiled")
    assert result.verdict == "error"
    assert "torch.compile has made no graph of the model" in result.reason


@pytest.mark.parametrize(
    ("side", "said"),
    [
        ("accumulate = 3", "accumulate = 3: the input x has 8 rows along dim 0, expected a multiple of 3"),
        ('checkpointing = "blok"', "checkpointing = 'blok': the model has no such module"),
        ('step = "sides_torch:whol"', "train.torch_step=sides_torch:whol: sides_torch has no 'whol'"),
    ],
)
def test_what_a_side_cannot_do_is_one_line(session: Session, folder: Path, side: str, said: str) -> None:
    path = written(folder, "layers", "torch")
    path.write_text(f"{path.read_text()}\n[sides.wrong]\n{side}\n")
    (result,) = session.equivalent(file.load(path, sides=["torch", "wrong"]))
    assert (result.verdict, result.error) == ("error", "usage")
    assert result.reason.startswith(f"wrong: {said}")
