"""Pairs of training scripts, from the command or the file to the verdict: what a user runs is what is compared."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow import sampled

from parity.asserts import Session
from parity.core.errors import UsageError
from parity.core.script import framework
from parity.pairs import file as files
from parity.pairs.compare import compared
from parity.pairs.script_counterparts import ignored_as
from parity.pairs.script_steps import axes
from parity.results import CaseResult, Report
from parity.runtime.backend import Backend
from parity.subjects import compared_folders
from parity.subjects.run import RecordedScript
from parity.trace.manifest import Trace

SCRIPTS = Path(__file__).parent / "scripts"
SLOW = pytest.mark.slow
Edits = Sequence[tuple[str, str, str]]  # a file, the text that is replaced in it, and by what


def _compared(name: str, edits: Edits, backends: list[Backend], folder: Path) -> CaseResult:
    """Compare a pair of scripts after edits of a copy of them."""
    copy = folder / "scripts"
    shutil.copytree(SCRIPTS, copy)
    for file, before, after in edits:
        text = (copy / file).read_text()
        assert before in text
        (copy / file).write_text(text.replace(before, after))
    return compared(files.load(copy / f"{name}.toml"), backends, folder / "traces", varied=False)


def _matches(result: CaseResult) -> bool:
    """Whether all of two trainings is equal, but for the accepted statistics of batch norm."""
    checks = [result.checks[kind] for kind in ("loss", "gradient", "update", "parameter")]
    assert all(check.verdict == "match" and check.compared for check in checks), result.checks
    return result.verdict == "match" and [cause.id for cause in result.expected] == ["batch_norm.running_variance"]


BY_EPOCH = [
    ("train_fit.py", "SGD(rate)", "SGD(0.05)"),
    ("train_fit.py", "TerminateOnNaN()", "LearningRateScheduler(lambda epoch: 0.05 * 0.5**epoch)"),
]
NUMBERED_FROM_1 = [*BY_EPOCH, ("train_fit.py", "0.5**epoch", "0.5 ** (epoch + 1)")]


@pytest.mark.parametrize(
    ("edits", "told"), [pytest.param(BY_EPOCH, [], marks=SLOW), (NUMBERED_FROM_1, ["sgd.learning_rate"])]
)
def test_callbacks_set_the_rate_of_an_epoch(edits: Edits, told: list[str], backends: list[Backend], tmp_path: Path):
    """The third step is the first of another epoch."""
    result = _compared("fit", edits, backends, tmp_path)
    assert result.verdict == "diverged" if told else _matches(result)
    assert [cause.id for cause in result.causes] == told
    for said in ("callbacks of fit", "fit fails", "as asked for"):
        assert not any(said in each for each in result.not_compared)


@pytest.mark.parametrize("name", sampled(["vae", "triplet", "state"], "vae"))
def test_models_without_a_call_that_are_called_thrice_or_given_a_state(
    name: str, backends: list[Backend], tmp_path: Path
):
    """They are run as a train_step does, which may take data alone, and begin with zeros on both sides."""
    result = _compared(name, [], backends, tmp_path)
    assert result.verdict == "match" and not result.causes, result
    for kind in ("activation", "loss", "gradient", "update", "parameter"):
        assert result.checks[kind].verdict == "match" and result.checks[kind].compared, kind


def test_a_state_that_is_carried_from_step_to_step(backends: list[Backend], tmp_path: Path):
    """It is far out of proportion to what the place of Adam's epsilon makes of the updates."""
    edits = [
        ("train_state.py", "SGD(model.parameters(), lr=0.1)", "Adam(model.parameters(), lr=0.01)"),
        ("train_state_fit.py", "SGD(0.1)", "Adam(0.01, epsilon=1e-8)"),
        ("train_state_fit.py", "use_bias=False", "use_bias=False, stateful=True"),
    ]
    result = _compared("state", edits, backends, tmp_path)
    assert [cause.id for cause in result.causes] == ["state.carried", "adam.epsilon_placement"]
    assert result.causes[0].where == "lstm"


LABEL = [("train_gan_fit.py", "self.criterion(ops.zeros", "self.criterion(0.1 * ops.ones")]
RATE_OF_ONE = [("train_gan_fit.py", "SGD(0.1), keras.optimizers.SGD(0.2)", "SGD(0.1), keras.optimizers.SGD(0.1)")]
ADAM = [
    ("train_gan.py", "torch.optim.SGD(critic.parameters(), lr=0.1)", "torch.optim.Adam(critic.parameters(), lr=0.01)"),
    ("train_gan_loop.py", "keras.optimizers.SGD(0.1)", "keras.optimizers.Adam(0.01, epsilon=1e-8)"),
]
BEFORE = [*ADAM, ("train_gan_loop.py", "judged = critic(fake, training=True)", "judged = judged_fake")]
ADAM_EPSILON = ("adam.epsilon_placement", "after the correction", "before the correction")
BEFORE += [("train_gan_loop.py", "critic(tf.stop_gradient(fake)", "critic(fake")]
STOPPED = [
    (
        "train_penalty_loop.py",
        "slope = inner.gradient(judged, between)",
        "slope = tf.stop_gradient(inner.gradient(judged, between))",
    )
]
COLDER = [("train_pairs_fit.py", "/ 0.5)", "/ 0.25)")]
OTHER_SHARE = [("train_attack_loop.py", "SHARE = 0.7", "SHARE = 0.5")]
ROOT = [("train_noise_fit.py", "ops.sqrt(1 - share) * noise", "(1 - share) * noise")]

# Of two batches, whose datasets are made anew: three steps reach the second.
EPOCHS = [
    ("train_gan.py", "batch_size=16", "batch_size=32"),
    ("train_gan_loop.py", ".shuffle(64).batch(16)", ""),
    ("train_gan_loop.py", "for batch in dataset:", "for batch in dataset.shuffle(64).batch(32):"),
]


STEPS = {
    "gan": ("gan", [], []),
    "gan's optimizers": ("gan", RATE_OF_ONE, [("sgd.learning_rate", 0.2, 0.1)]),
    "loop": ("gan_loop", [], []),
    "loop's adam": ("gan_loop", ADAM, [ADAM_EPSILON]),
    "loop's order": ("gan_loop", BEFORE, [("unknown", None, None), ADAM_EPSILON]),
    "loop's epochs": ("gan_loop", EPOCHS, []),
    "penalty": ("penalty", [], []),
    "penalty's gradient": ("penalty", STOPPED, [("gradient.stopped", "no stop_gradient", "stop_gradient")]),
    "noise": ("noise", [], []),
    "noise's share": ("noise", ROOT, [("code.function", "sqrt", "left out")]),
    "attack": ("attack", [], []),
    "attack's loss": ("attack", OTHER_SHARE, [("code.constant", 0.7, 0.5)]),
    "views": ("views", [], []),
    "pairs": ("pairs", [], []),
    "pairs' temperature": ("pairs", COLDER, [("code.constant", 0.5, 0.25)]),
}
# Where a fault is run always, its script is not: that all else matches is seen by the causes, which are no more.
SAMPLE = ("gan's optimizers", "loop's order", "penalty", "attack", "pairs' temperature")


@pytest.mark.parametrize(
    ("name", "edits", "told"), sampled([pytest.param(*row, id=name) for name, row in STEPS.items()], *SAMPLE)
)
def test_steps_that_make_what_their_models_are_given(
    name: str, edits: Edits, told: list[tuple[str, Any, Any]], backends: list[Backend], tmp_path: Path
):
    """By random numbers, another model or an attack: they begin with a batch, and what they make of it is compared.

    A change of a loop's code holds for the runs of the script that begin anew.
    """
    result = _compared(name, edits, backends, tmp_path)
    assert [(cause.id, cause.torch, cause.keras) for cause in result.causes] == told
    assert result.verdict == ("diverged" if told else "match")
    for kind in ("activation", "gradient", "update", "parameter"):
        assert result.checks[kind].compared, kind
    assert name not in ("attack", "views", "pairs") or result.checks["loss"].compared
    assert any("before they take a batch" in each for each in result.not_compared)


@pytest.mark.usefixtures("verdicts_only")
def test_a_target_within_a_model_that_follows_faster(backends: list[Backend], tmp_path: Path):
    """It begins as a copy on both sides, so that the second step is the first to part."""
    edit = ("train_views_fit.py", "0.75 * follower + 0.25", "0.25 * follower + 0.75")
    first = _compared("views", [edit], backends, tmp_path).first_divergence
    assert first and (first.step, first.kind) == (1, "loss")


OTHER_RATE = [("train_values_loop.py", "slow.assign(0.9 * slow + 0.1", "slow.assign(0.1 * slow + 0.9")]


@pytest.mark.parametrize(("edits", "first"), [pytest.param([], None, marks=SLOW), (OTHER_RATE, (1, "loss"))])
def test_loops_that_train_on_their_own_batches(
    edits: Edits, first: tuple[int, str] | None, backends: list[Backend], tmp_path: Path
):
    """If they are the same: then no tensor of the loss has to be known. The target network begins as the other does."""
    result = _compared("values", edits, backends, tmp_path)
    found = result.first_divergence
    assert (found and (found.step, found.kind)) == first
    assert any("train on their own" in each for each in result.not_compared)


@pytest.mark.usefixtures("verdicts_only")
def test_loops_with_other_batches_are_given_those_of_pytorch(backends: list[Backend], tmp_path: Path):
    """Which tensor of this loss is Keras's target is not told then: that a right port parts is a known gap."""
    result = _compared("values", [("train_values_loop.py", "default_rng(0)", "default_rng(1)")], backends, tmp_path)
    assert any("both were given the batches of train_values.py" in each for each in result.not_compared)


RATE = [("train_average_loop.py", "0.9 * average + 0.1", "0.1 * average + 0.9")]


@pytest.mark.parametrize(("edits", "told"), [pytest.param([], [], marks=SLOW), (RATE, [("average.rate", 0.9, 0.1)])])
def test_a_target_network_and_a_mask_of_the_batch(
    edits: Edits, told: list[tuple[str, float, float]], backends: list[Backend], tmp_path: Path
):
    result = _compared("average", edits, backends, tmp_path)
    assert result.verdict == ("diverged" if told else "match"), result
    assert [(each.id, each.torch, each.keras) for each in result.causes] == told


TO_FROM = [("train_chain_loop.py", "states[:, :-1], states[:, 1:]", "states[:, 1:], states[:, :-1]")]
UNMASKED = [("train_chain_loop.py", "tf.where(mask[:, t : t + 1], step, total)", "step")]


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([], []),
        pytest.param(TO_FROM, [("gather.order", "as they are", "indices exchanged", "train_chain.py:22)")], marks=SLOW),
        pytest.param(UNMASKED, [("module.wiring", "where", "the first alone", "train_chain.py:27)")], marks=SLOW),
    ],
)
def test_a_loss_that_reads_weights_of_the_model(
    edits: Edits, told: list[tuple[str, str, str, str]], backends: list[Backend], tmp_path: Path
):
    result = _compared("chain", edits, backends, tmp_path)
    assert result.verdict == ("diverged" if told else "match"), result
    assert [(each.id, each.torch, each.keras) for each in result.causes] == [each[:3] for each in told]
    assert all(each[3] in cause.evidence for cause, each in zip(result.causes, told, strict=True))


BY_HAND = [
    (
        "train_ranks.py",
        "mp.spawn(main, args=(ranks,), nprocs=ranks)",
        "mp.set_start_method('spawn')\n    processes = []",
    ),
    ("train_ranks.py", "processes = []", "processes = [mp.Process(target=main, args=(rank, 2)) for rank in range(2)]"),
    ("train_ranks.py", "in range(2)]", "in range(2)]\n    [each.start() for each in processes], processes[0].join()"),
    ("train_ranks_loop.py", "optimizer.apply_gradients(zip(", "[v.assign_sub(0.1 * g) for g, v in zip("),
    ("train_ranks_loop.py", "strict=True))", "strict=True)]"),
    ("train_ranks_loop.py", "    optimizer = keras.optimizers.SGD(0.1 * strategy.num_replicas_in_sync)\n", ""),
]
HALF = [("train_ranks_loop.py", "global_batch_size=batch", "global_batch_size=2 * batch")]
WAITING = [("train_shards_fit.py", "SGD(0.1)", "SGD(0.1, gradient_accumulation_steps=2)")]


SEVERAL_DEVICES = {
    "spawn": ("ranks", [], []),
    "by hand": ("ranks", BY_HAND, []),
    "another batch": ("ranks", HALF, [("loss.normalisation", 1.0, 0.5)]),
    "torchrun": ("shards", [], []),
    "other updates": ("shards", WAITING, [("accumulation.updates", "3 updates in 3 steps", "1 update in 3 steps")]),
}


@pytest.mark.parametrize(
    ("name", "edits", "told"),
    sampled([pytest.param(*row, id=name) for name, row in SEVERAL_DEVICES.items()], "by hand", "other updates"),
)
def test_scripts_for_several_devices_run_as_one_rank_and_one_replica(
    name: str, edits: Edits, told: list[tuple[str, Any, Any]], backends: list[Backend], tmp_path: Path
):
    """Also those for GPUs, where there are none."""
    result = _compared(name, edits, backends, tmp_path)
    assert [(cause.id, cause.torch, cause.keras) for cause in result.causes] == told, result
    assert result.verdict == ("diverged" if told else "match")
    assert result.checks["loss"].compared and result.checks["update"].compared
    assert any(f"train_{name}.py and train_{name}_" in each and "devices" in each for each in result.not_compared)


SOFT = [
    ("train_ranks.py", "labels.to(rank))", "0.9 * nn.functional.one_hot(labels.to(rank), 4) + 0.025)"),
    ("train_ranks_loop.py", "SparseCategorical", "Categorical"),
    ("train_ranks_loop.py", "loss_of(labels, model", "loss_of(0.9 * tf.one_hot(labels, 4) + 0.025, model"),
]
SEVERAL = [
    ("train_chain.py", "def forward(self, x):\n        return self.emit(x)",
        "def forward(self, x, w):\n        return self.emit(x * w)"),
    ("train_chain.py", "model(x), y", "model(x, torch.rand(8, 1, 1)), y"),
    ("train_chain_loop.py", "def call(self, x):\n        return self.emit(x)",
        "def call(self, x, w):\n        return self.emit(x * w)"),
    ("train_chain_loop.py", "model(x, training=True)", "model(x, tf.ones((8, 1, 1)), training=True)"),
]  # fmt: skip
FROZEN = [
    ("train_ranks.py", "8, 4)).to(rank)",
        "8, 4)).to(rank)\n    model[1].requires_grad_(False).weight.copy_(torch.ones(8, 6) / 3)"),
    ("train_ranks_loop.py", '"relu")', '"relu", trainable=False, kernel_initializer=numbers)'),
    ("train_ranks_loop.py", "draws = ",
        "numbers = lambda shape, dtype=None: tf.cast(tf.reshape(tf.range(48), shape), dtype) / 9\ndraws = "),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "edits"), [("ranks", [*SOFT, *FROZEN]), ("chain", SEVERAL)], ids=["targets and weights", "inputs"]
)
def test_what_a_step_makes_of_its_targets_takes_beside_its_input_and_leaves_frozen(
    name: str, edits: Edits, backends: list[Backend], tmp_path: Path
):
    result = _compared(name, edits, backends, tmp_path)
    assert result.verdict == "match" and result.checks["update"].compared, result
    assert edits is SEVERAL or any("frozen weights" in each for each in result.assumptions)


@SLOW
def test_a_loss_of_each_sample_is_differentiated_as_their_sum(backends: list[Backend], tmp_path: Path):
    result = _compared("twice", [("train_twice_loop.py", "tf.reduce_mean(alike", "(alike")], backends, tmp_path)
    assert [(each.id, each.torch, each.keras) for each in result.causes] == [("loss.normalisation", 1.0, 16.0)], result


def test_what_follows_an_update_that_was_not_recorded_is_no_first_difference(backends: list[Backend], tmp_path: Path):
    """The parameters behind the second step are not; its update is the first in which a momentum is felt."""
    result = _compared("triplet", [("train_triplet_fit.py", "SGD(0.1)", "SGD(0.1, momentum=0.9)")], backends, tmp_path)
    assert [(each.id, each.torch, each.keras) for each in result.causes] == [("sgd.momentum", 0.0, 0.9)], result
    assert result.first_divergence and result.first_divergence.kind == "update"


def test_masks_of_a_flattened_image_are_those_of_its_pixels(backends: list[Backend], tmp_path: Path):
    """Keras flattens channels last, and PyTorch channels first."""
    edits = [
        ("train.py", ".permute(0, 2, 3, 1)", ""),
        (
            "train.py",
            "self.head(self.dropout(torch.relu(self.hidden(x))))",
            "self.head(torch.relu(self.hidden(self.dropout(x))))",
        ),
        (
            "train_loop.py",
            "self.head(self.dropout(self.hidden(self.flatten(x)), training=training))",
            "self.head(self.hidden(self.dropout(self.flatten(x), training=training)))",
        ),
    ]
    assert _matches(_compared("loop", edits, backends, tmp_path))


def test_one_target_of_several_losses_may_be_several_of_fit(backends: list[Backend], tmp_path: Path):
    edits = [
        ("train_heads.py", "nn.Linear(16, 1)", "nn.Linear(16, CLASSES)"),
        ("train_heads.py", "functional.mse_loss(size, sizes)", "functional.cross_entropy(size, kinds)"),
        ("train_heads_fit.py", "layers.Dense(1)", "layers.Dense(CLASSES)"),
        ("train_heads_fit.py", '"size": "mse"', '"size": keras.losses.CategoricalCrossentropy(from_logits=True)'),
        ("train_heads_fit.py", '"size": draw(size=(64, 1))', '"size": kinds'),
    ]
    result = _compared("heads", edits, backends, tmp_path)
    assert result.verdict == "match" and result.checks["loss"].compared and not result.causes, result


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("", "", []),
        (
            "self.soft(wanted, ops.softmax(y_pred / 3))",
            "self.soft(ops.softmax(y_pred / 3), wanted)",
            ["function.arguments"],
        ),
        pytest.param("training=False", "training=training", ["dropout.rate"], marks=SLOW),
        pytest.param("teacher.trainable = False", "", ["gradient.missing"], marks=SLOW),
    ],
    ids=["right", "arguments", "dropout", "trained"],
)
def test_a_teacher_beside_the_model_has_pytorchs_weights(
    before: str, after: str, named: list[str], backends: list[Backend], tmp_path: Path
):
    result = _compared("teacher", [("train_teacher_fit.py", before, after)], backends, tmp_path)
    assert result.verdict == ("diverged" if named else "match"), result
    assert [cause.id for cause in result.causes] == named
    assert any("teacher.0.weight" in each for each in result.assumptions) != (named == ["gradient.missing"])


def test_adams_epsilon_hides_no_gradient_of_a_later_step(backends: list[Backend], tmp_path: Path):
    """In a further run PyTorch adds it where Keras does: then a slight difference is none of the epsilon's."""
    larger = "gradients = [g * (1 + 0.02 * tf.cast(optimizer.iterations > 0, g.dtype)) for g in gradients]"
    edits = [
        ("train_twice.py", "SGD(model.parameters(), lr=0.1)", "Adam(model.parameters(), lr=0.01, eps=1e-4)"),
        ("train_twice_loop.py", "SGD(0.1)", "Adam(0.01, epsilon=1e-4)"),
        ("train_twice_loop.py", "    optimizer.apply", f"    {larger}\n    optimizer.apply"),
    ]
    result = _compared("twice", edits, backends, tmp_path)
    assert [each.id for each in result.causes] == ["gradient.scale", "adam.epsilon_placement"], result
    assert (result.first_divergence.kind, result.first_divergence.step) == ("gradient", 1)
    right = _compared("twice", edits[:2], backends, tmp_path / "right")
    assert [each.id for each in right.causes] == ["adam.epsilon_placement"], right


@pytest.mark.parametrize("weight", [0.5, pytest.param(0.25, marks=SLOW)])
def test_several_targets_are_those_of_their_losses(weight: float, backends: list[Backend], tmp_path: Path):
    edits = [("train_heads_fit.py", '"size": 0.5}', f'"size": {weight}}}')]
    result = _compared("heads", edits, backends, tmp_path)
    assert result.verdict == ("match" if weight == 0.5 else "diverged"), result
    assert [(each.id, each.torch, each.keras) for each in result.causes] == (
        [] if weight == 0.5 else [("compile.loss_weights", 0.5, weight)]
    )
    assert result.checks["loss"].compared and result.checks["update"].compared


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize("second", sampled(["other", "x"], "x"))
def test_a_model_is_called_twice_in_a_step(second: str, backends: list[Backend], tmp_path: Path):
    edits = [("train_twice_loop.py", "model(other, training", f"model({second}, training")]
    result = _compared("twice", edits, backends, tmp_path)
    assert result.verdict == ("match" if second == "other" else "diverged"), result
    assert result.checks["loss"].compared and result.checks["update"].compared


FIT = "model.fit(images, labels, batch_size=24, epochs=2, callbacks=[keras.callbacks.TerminateOnNaN()], verbose=0)"
BATCHES = "for _ in range(2):\n  for i in (0, 24):\n    model.train_on_batch(images[i : i + 24], labels[i : i + 24])\n"
# A rate by a count in Python, which a graph keeps as it was when it was traced.
BY_COUNT = "        seen.append(0)\n        optimizer.learning_rate.assign(0.05 if len(seen) <= 2 else 0.025)\n"
TRACED = [
    ("train_loop.py", "    @tf.function", "    seen = []\n\n    @tf.function"),
    ("train_loop.py", "        with tf", f"{BY_COUNT}        with tf"),
    ("train_loop.py", "        optimizer.learning_rate = optimizer.learning_rate * 0.5\n", ""),
]
FAULTS = {
    "smoothing": ("fit", [("fit.toml", 'train.py"', 'train.py --smoothing=0.1"')], "cross_entropy.label_smoothing"),
    "rate": ("fit", [("train_fit.py", "(0.05,", "(0.04,")], "sgd.learning_rate"),
    "inference": ("loop", [("train_loop.py", "model(images, training=True)", "model(images)")], "batch_norm.mode"),
    "penalty": ("loop", [("train_loop.py", "loss = tf", "loss = 1e-3 * tf.nn.l2_loss(model.head.kernel) + tf")],
        "code.constant"),
    "sample": ("vae", [("train_vae.py", "ops.exp(0.5 * deviation) *", "ops.exp(deviation) *")], "module.wiring"),
    "seed": ("vae", [("train_vae.py", "seed=self.seed)", "seed=7)")], "dropout.seed"),
    "place": ("fit", [("train_fit.py", "        layers.Dropout(0.2),\n", ""),
        ("train_fit.py", "        layers.Flatten(),", "        layers.Dropout(0.2),\n        layers.Flatten(),")],
        "dropout.place"),
    "factor": ("loop", [("train.py", "model(images), labels", "2.0 * model(images), labels")], "code.function"),
    "sum": ("loop", [("train_loop.py", "reduce_mean(tf.nn", "reduce_sum(tf.nn")], "code.function"),
    "traced": ("loop", TRACED, "fit.graph"),
    "between": ("fit", [("train_fit.py", FIT, f"{BATCHES}    model.layers[-1].bias.assign_add([1.0] * CLASSES)")],
        "unknown"),
    "evaluation": ("fit", [("train.py", "range(2):\n        model.train()\n",
        "range(2):\n        model.train(epoch == 0)\n")], "dropout.active"),
}  # fmt: skip


@SLOW
@pytest.mark.parametrize(("name", "edits", "cause"), FAULTS.values(), ids=FAULTS)
def test_a_fault_of_the_training_is_named(name: str, edits: Edits, cause: str, backends: list[Backend], tmp_path: Path):
    result = _compared(name, edits, backends, tmp_path)
    assert result.verdict == "diverged" and cause in [each.id for each in result.causes]


def test_an_average_of_the_weights_with_which_fit_ends_is_no_other_graph(backends: list[Backend], tmp_path: Path):
    result = _compared("fit", [("train_fit.py", "SGD(rate)", "SGD(rate, use_ema=True)")], backends, tmp_path)
    assert _matches(result), result


MINED = """
def mined(logits, labels):
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    hard = (labels > 0) & (losses > 1.0)
    return torch.where({}, losses, torch.zeros_like(losses)).mean()


class Net"""


@pytest.mark.parametrize(("mask", "told"), [("hard", []), pytest.param("losses > 1.0", ["mask.missing"], marks=SLOW)])
def test_a_mask_of_outputs_and_targets_is_made_anew(
    mask: str, told: list[str], backends: list[Backend], tmp_path: Path
):
    """The step is given the batch's own targets, and the port's loss misses one of the two conditions."""
    loss = """
def mined(labels, logits):
    losses = keras.losses.categorical_crossentropy(labels, logits, from_logits=True)
    hard = (keras.ops.argmax(labels, -1) > 0) & (losses > 1.0)
    return keras.ops.mean(keras.ops.where({}, losses, 0.0))


class Rectified"""
    edits = [
        ("train.py", "\nclass Net", MINED.format("hard")),
        ("train.py", "criterion(model(images), labels)", "mined(model(images), labels)"),
        ("train_fit.py", "\nclass Rectified", loss.format(mask)),
        ("train_fit.py", "keras.losses.CategoricalCrossentropy(from_logits=True)", "mined"),
    ]
    result = _compared("fit", edits, backends, tmp_path)
    assert _matches(result) if not told else [each.id for each in result.causes] == told, result.causes


WEIGHED = [
    ("train.py", "torch.randint(0, CLASSES, (48,)))", "torch.randint(0, CLASSES, (48,)), torch.rand(48))"),
    ("train.py", "for images, labels in loader:", "for images, labels, weights in loader:"),
    ("train.py", "for images, labels in loader)", "for images, labels, _ in loader)"),
    ("train.py", "label_smoothing=args.smoothing", 'reduction="none"'),
    ("train.py", "criterion(model(images), labels)", "(criterion(model(images), labels) * weights).mean()"),
]
WEIGHTS = ("train_fit.py", "batch_size=24", 'sample_weight=np.ones(48, "float32"), batch_size=24')


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize("edits", [pytest.param([], marks=SLOW), [WEIGHTS]])
def test_weights_of_samples_are_those_of_a_fit_that_has_some(edits: Edits, backends: list[Backend], tmp_path: Path):
    result = _compared("fit", [*WEIGHED, *edits], backends, tmp_path)
    assert result.verdict == ("match" if edits else "diverged"), result
    assert result.first_divergence is None or result.first_divergence.kind == "loss"


def test_what_a_script_does_between_its_batches_is_run(backends: list[Backend], tmp_path: Path):
    result = _compared("fit", [("train_fit.py", FIT, BATCHES)], backends, tmp_path)
    assert result.verdict == "match" and result.checks["update"].compared
    assert not any("TerminateOnNaN" in each for each in result.not_compared)


@pytest.mark.usefixtures("verdicts_only")
def test_another_batch_size_and_data_of_another_scale_are_findings(backends: list[Backend], tmp_path: Path):
    edits = [("batch_size=24", "batch_size=16"), ("normal(size", "normal(scale=255, size")]
    result = _compared("fit", [("train_fit.py", *each) for each in edits], backends, tmp_path)
    found = {finding.id: finding.message for finding in result.findings}
    assert result.verdict == "match" and found.keys() >= {"script.batch_size", "script.data"}
    assert "24" in found["script.batch_size"] and "16" in found["script.batch_size"]
    assert "its root mean square is 25" in found["script.data"]


def test_clipping_that_is_accepted_at_one_gradient_is_that_of_all(backends: list[Backend], tmp_path: Path):
    """In scripts that end before as many steps as are asked for, which is told."""
    clipped = "gradients, _ = tf.clip_by_global_norm(gradients, 0.1)\n        optimizer.apply"
    accepted = (
        '[train]\nsteps = 4\n\n[[expect]]\ncause = "clip.epsilon"\nwhere = "*"\nreason = "1e-6 beside the norm"\n\n'
        '[[expect]]\ncause = "batch'
    )
    edits = [
        (
            "train.py",
            "optimizer.step()",
            "nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n            optimizer.step()",
        ),
        ("train.py", "range(2)", "range(1)"),
        ("train_loop.py", "optimizer.apply", clipped),
        ("loop.toml", '[[expect]]\ncause = "batch', accepted),
    ]
    result = _compared("loop", edits, backends, tmp_path)
    assert result.verdict == "match" and "clip.epsilon" in [cause.id for cause in result.expected]
    assert "4 steps, as asked for: train.py ends after 2" in result.not_compared


def _decayed(times: float) -> Edits:
    applied = f"[{times} * v + g for g, v in zip(gradients, model.trainable_variables)]\n        optimizer.apply"
    return [
        ("train.py", "lr=args.lr)", "lr=args.lr, weight_decay=0.01)"),
        ("train_loop.py", "optimizer.apply", f"gradients = {applied}"),
    ]


def test_weight_decay_in_the_gradients_is_that_of_an_optimizer(backends: list[Backend], tmp_path: Path):
    """Both steps scale their batch as well; the data of the two scripts tell where it is made."""
    result = _compared("loop", [*_decayed(0.01), *SCALED_ALIKE], backends, tmp_path)
    assert _matches(result) and not any("TerminateOnNaN" in each for each in result.not_compared)
    assert not [finding for finding in result.findings if finding.id.startswith("script.")]
    assert any("the weight decay that the other's optimizer adds" in each for each in result.assumptions)


@SLOW
def test_another_weight_decay_in_the_gradients_is_named(backends: list[Backend], tmp_path: Path):
    result = _compared("loop", _decayed(0.02), backends, tmp_path)
    (cause,) = [each for each in result.causes if each.id.startswith("weight_decay")]
    assert (cause.id, cause.torch, cause.keras) == ("weight_decay.value", 0.01, 0.02)


WRITTEN_OUT = "tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))"
OF_KERAS = [("train_loop.py", WRITTEN_OUT, "keras.losses.SparseCategoricalCrossentropy(True)(labels, logits)")]
OTHER_TARGET = [*OF_KERAS, ("train_loop.py", "(True)(labels", "(True)(tf.roll(labels, 1, 0)")]
OTHER_INPUT = [("train_loop.py", "model(images, training=True)", "model(images[:, ::-1], training=True)")]
OTHER_ARGUMENT = [("train_loop.py", "train_step(*batch)", "train_step(tf.reverse(batch[0], [1]), batch[1])")]
SCALED = [("train.py", "model(images), labels", "model(2 * images), labels")]
SCALED_ALIKE = [*SCALED, ("train_loop.py", "model(images, training=True)", "model(2 * images, training=True)")]
SCALED_BEFORE = [*SCALED, ("train_loop.py", "normal(size", "normal(scale=2, size")]


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize(
    "edits", [OTHER_TARGET, pytest.param(OTHER_INPUT, marks=SLOW), pytest.param(OTHER_ARGUMENT, marks=SLOW)]
)
def test_what_a_step_makes_of_its_batch_is_compared(edits: Edits, backends: list[Backend], tmp_path: Path):
    assert _compared("loop", edits, backends, tmp_path).verdict == "diverged"


@SLOW
@pytest.mark.parametrize("edits", [OF_KERAS, SCALED_BEFORE], ids=["loss", "before"])
def test_what_both_steps_make_of_a_batch_or_one_makes_before(edits: Edits, backends: list[Backend], tmp_path: Path):
    """The data of the two scripts tell where it is made."""
    assert _matches(_compared("loop", edits, backends, tmp_path))


@pytest.mark.parametrize("within", [pytest.param(True, marks=SLOW), False])
def test_a_constant_of_a_loop_in_a_function(within: bool, backends: list[Backend], tmp_path: Path):
    """The loop of train_loop.py stands in main(), whose code is changed, or that of a function which it calls."""
    capped, written_out = "(lambda x: {0} * {1}.tanh(x / {0}))({2})", "{0} * {1}.tanh({2} / {0})"
    form = capped if within else written_out
    edits = [
        ("train.py", "model(images), labels", f"{form.format(3.0, 'torch', 'model(images)')}, labels"),
        ("train_loop.py", "model(images, training=True)", form.format(2.0, "tf", "model(images, training=True)")),
    ]
    result = _compared("loop", edits, backends, tmp_path)
    assert ("code.constant", 3.0, 2.0) in [(each.id, each.torch, each.keras) for each in result.causes], result


@SLOW
def test_a_step_that_begins_with_a_batch_is_also_run_as_a_graph(backends: list[Backend], tmp_path: Path):
    result = _compared("loop", [*OF_KERAS, *TRACED], backends, tmp_path)
    assert "fit.graph" in [each.id for each in result.causes], result


@pytest.mark.parametrize(
    ("edits", "verdict"), [("[items, users]", "match"), pytest.param("[users, items]", "diverged", marks=SLOW)]
)
def test_inputs_are_those_that_hold_the_same_data(edits: str, verdict: str, backends: list[Backend], tmp_path: Path):
    edit = ("train_ratings_fit.py", "fit([items, users]", f"fit({edits}")
    result = _compared("ratings", [edit], backends, tmp_path)
    assert result.verdict == verdict
    assert not any("of one shape" in each for each in result.assumptions)


OTHER_DATA = ("train_ratings_fit.py", "users, items = RATINGS.T", "users, items = RATINGS[::-1].T")


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        pytest.param("[items, users]", "match", marks=SLOW),
        ("[users, items]", "diverged"),
        pytest.param('{"second": items, "first": users}', "match", marks=SLOW),
        pytest.param('{"second": users, "first": items}', "diverged", marks=SLOW),
    ],
)
def test_inputs_that_no_data_tell_are_those_that_are_called_alike(
    given: str, verdict: str, backends: list[Backend], tmp_path: Path
):
    edits = [OTHER_DATA, ("train_ratings_fit.py", "fit([items, users]", f"fit({given}")]
    if given.startswith("{"):
        edits.append(("train_ratings_fit.py", "Model([item, user],", 'Model({"first": user, "second": item},'))
    result = _compared("ratings", edits, backends, tmp_path)
    assert result.verdict == verdict and any("of one shape" in each for each in result.assumptions), result


@pytest.mark.parametrize(
    ("targets", "verdict"), [("[sizes, kinds]", "match"), pytest.param("[kinds, sizes]", "diverged", marks=SLOW)]
)
def test_outputs_are_those_whose_targets_are_called_alike(
    targets: str, verdict: str, backends: list[Backend], tmp_path: Path
):
    """Keras's model returns them in another order, which is none of the computation."""
    heads = '{"kind": layers.Dense(CLASSES)(hidden), "size": layers.Dense(1)(hidden)}'
    losses = '{"kind": keras.losses.CategoricalCrossentropy(from_logits=True), "size": "mse"}'
    edits = [
        ("train_heads.py", "nn.Linear(16, CLASSES)", "nn.Linear(16, 1)"),
        ("train_heads.py", "torch.randint(0, CLASSES, (16,))", "torch.randn(16, 1)"),
        ("train_heads.py", "cross_entropy(kind, kinds)", "mse_loss(kind, kinds)"),
        ("train_heads_fit.py", heads, '[layers.Dense(1, name=name)(hidden) for name in ("size", "kind")]'),
        ("train_heads_fit.py", losses, '["mse", "mse"]'),
        ("train_heads_fit.py", '{"kind": 1.0, "size": 0.5}', "[0.5, 1.0]"),
        ("train_heads_fit.py", "draw = ", "draw, sizes, kinds = "),
        ("train_heads_fit.py", ".normal", ".normal, *np.random.default_rng(1).normal(size=(2, 64, 1))"),
        ("train_heads_fit.py", '{"kind": kinds, "size": draw(size=(64, 1))}', targets),
    ]
    assert _compared("heads", edits, backends, tmp_path).verdict == verdict


def test_scripts_that_train_alike_match_until_the_first_fit_ends(backends: list[Backend], tmp_path: Path):
    """By `fit`; a loop is compared above, where its gradients decay the weights."""
    result = _compared("fit", [("train_fit.py", "epochs=2", "epochs=1")], backends, tmp_path)
    assert _matches(result)
    assert not [finding for finding in result.findings if finding.id.startswith("script.")]
    assert any("TerminateOnNaN" in each for each in result.not_compared)
    assert any("train_fit.py's first call of fit" in each and "after 2" in each for each in result.not_compared)


def test_parameters_that_no_step_changes_are_told(backends: list[Backend], tmp_path: Path):
    edits = [("train.py", "lr=args.lr", "lr=0.0"), ("train_fit.py", "SGD(rate)", "SGD(0.0)")]
    told = [each for each in _compared("fit", edits, backends, tmp_path).not_compared if "what updates do" in each]
    assert len(told) == 1 and told[0].startswith("what updates do to conv.weight, conv.bias, ")


UNMASKED = [("train_lengths_loop.py", ", mask=mask", ", mask=tf.ones_like(mask)")]
OVER_ALL = [("train_lengths_loop.py", "/ tf.reduce_sum(mask)", "/ tf.cast(tf.size(tags), logits.dtype)")]


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([], None),
        *(pytest.param(*each, marks=SLOW) for each in ((UNMASKED, "unknown"), (OVER_ALL, "loss.normalisation"))),
    ],
)
def test_lengths_and_paddings(edits: Edits, told: str | None, backends: list[Backend], tmp_path: Path):
    """PyTorch's model alone is given lengths, and each script pads to the longest of its own batches."""
    result = _compared("lengths", edits, backends, tmp_path)
    assert {cause.id for cause in result.expected} == {"weights.sum"}
    assert result.verdict == ("diverged" if told else "match")
    assert told in [None, *(cause.id for cause in result.causes)]
    assert "lengths: given to train_lengths.py's model alone, with the rest of a batch" in result.assumptions


@SLOW
@pytest.mark.usefixtures("forks")
def test_sides_of_a_script():
    session = Session()
    file = files.load(SCRIPTS / "sides.toml", sides=["plain", "smoothed", "checkpointed", "compiled"])
    verdicts = {result.case.partition(",")[2]: result.verdict for result in session.equivalent(file)}
    session.close()
    assert verdicts == {"smoothed": "diverged", "checkpointed": "match", "compiled": "match"}


@pytest.mark.parametrize(
    ("name", "before", "after", "cause"),
    [
        ("train.py", "lr=args.lr", "lr=2 * args.lr", "sgd.learning_rate"),
        pytest.param("train_teacher.py", "0.75 * soft", "0.5 * soft", "sides.switch", marks=SLOW),
        pytest.param("train_fit.py", "decay_rate=0.5", "decay_rate=0.25", "sides.switch", marks=SLOW),
        ("train_loop.py", "SGD(0.05)", "SGD(0.05, weight_decay=0.5)", "weight_decay.value"),
    ],
)
def test_a_script_is_recorded_before_and_after_a_change(
    name: str, before: str, after: str, cause: str, backends: list[Backend], tmp_path: Path, capsys, monkeypatch
):
    """The second recording begins with the first one's weights, and trains on its batches."""
    shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    side = framework(name, ["."])
    backend = next(each for each in backends if each.name == side)
    own = files.of_script(name, side)
    for folder, like in (("before", None), ("same", Path("before", own.case.name))):
        RecordedScript(own, like).recorded(backend, Path(folder, own.case.name)).check()
        own = own._replace(case=Trace(Path(folder, own.case.name, side)).case)
    said = "after 3 steps, all parameters equal those of the bare script bit by bit: recording changes nothing\n"
    assert capsys.readouterr().out == (said if side == "torch" else "")
    Path(name).write_text(Path(name).read_text().replace(before, after))
    RecordedScript(own, Path("before", own.case.name)).recorded(backend, Path("after", own.case.name)).check()
    (same,) = compared_folders(Path("before"), Path("same"), Report())
    (changed,) = compared_folders(Path("before"), Path("after"), Report())
    assert same.verdict == "match" and same.checks["update"].compared, same
    assert changed.verdict == "diverged" and cause in [each.id for each in changed.causes], changed
    Path("moved.py").write_text(Path(name).read_text())
    with pytest.raises(UsageError, match="record the second script with --like=DIR"):
        RecordedScript(files.of_script("moved.py", side)).recorded(backend, Path("other/pair/moved")).check()
        list(compared_folders(Path("before"), Path("other"), Report()))


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([("fit.toml", "train_fit.py", "missing.py")], r"there is no script 'missing\.py' in "),
        (
            [("train_fit.py", "SIZE, SIZE, 3", "SIZE, SIZE, 4")],
            r"input x: train\.py gives its model \[24, 3, 6, 6\] float32",
        ),
        ([("train_fit.py", 'astype("float32")', 'astype("uint8")')], r"must stand in both models, or before both"),
        (
            [("train.py", "criterion(model(images), labels)", "model(images).mean()")],
            r"gives a target to fit, and the loss",
        ),
    ],
    ids=["missing", "shape", "preprocessing", "target"],
)
def test_scripts_that_cannot_be_compared(edits: Edits, message: str, backends: list[Backend], tmp_path: Path):
    with pytest.raises(UsageError, match=message):
        _compared("fit", edits, backends, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[pair]\ntorch = "train.py"\nkeras = "port:build"', "a training script on one side alone"),
        ('[pair]\ntorch = "a.py"\nkeras = "b.py"\n[train]\nloss = "mse"', r"\[train\] has loss, but scripts train by"),
        ('[pair]\ntorch = "a.py"\nkeras = "b.py"\n[inputs.x]\nshape = [2]', "inputs are given, but scripts train on"),
    ],
)
def test_files_that_say_otherwise_how_scripts_train(text: str, message: str, tmp_path: Path):
    file = tmp_path / "pair.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        files.load(file)


def test_what_pytorch_ignores_is_the_one_id_that_keras_alone_has():
    ids = np.array([1, 2, -100])
    assert ignored_as(ids, np.array([2, 0, 1])) == 0
    assert ignored_as(ids, np.array([2, -100, 1])) is None  # both ignore the same
    assert ignored_as(ids, np.array([0, 3, 1])) is None  # which of the two is not told


@pytest.mark.parametrize(
    ("given", "own", "pattern"),
    [
        ((4, 3, 8, 8), (9, 3, 8, 8), ""),
        ((4, 3, 8, 8), (9, 8, 8, 3), "b a1 a2 a3 -> b a2 a3 a1"),
        ((4, 1, 8, 8), (9, 8, 8, 1), "b 1 a2 a3 -> b a2 a3 1"),
        ((4, 1, 8, 8), (9, 8, 8), "b 1 a2 a3 -> b a2 a3"),
        ((4, 8), (9, 8, 1), "b a1 -> b a1 1"),
        ((4, 5, 7), (9, 7, 5), "b a1 a2 -> b a2 a1"),
        ((4, 5), (9, 6), None),
        ((4, 0), (9, 6), ""),
    ],
)
def test_axes(given: tuple[int, ...], own: tuple[int, ...], pattern: str | None):
    assert axes(given, own) == pattern
