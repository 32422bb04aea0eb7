"""Pairs of training scripts whose steps do more than call a model once: loops, GANs, several models and devices."""

from pathlib import Path
from typing import Any

import pytest
from edited_scripts import SLOW, Edits, compared_after, matches
from slow import sampled

from parity.runtime.backend import Backend

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
    result = compared_after("fit", edits, backends, tmp_path)
    assert result.verdict == "diverged" if told else matches(result)
    assert [cause.id for cause in result.causes] == told
    for said in ("callbacks of fit", "fit fails", "as asked for"):
        assert not any(said in each for each in result.not_compared)


@pytest.mark.parametrize("name", sampled(["vae", "triplet", "state"], "vae"))
def test_models_without_a_call_that_are_called_thrice_or_given_a_state(
    name: str, backends: list[Backend], tmp_path: Path
):
    """They are run as a train_step does, which may take data alone, and begin with zeros on both sides."""
    result = compared_after(name, [], backends, tmp_path)
    assert result.verdict == "match" and not result.causes, result
    for kind in ("activation", "loss", "gradient", "update", "parameter"):
        assert result.checks[kind].verdict == "match" and result.checks[kind].compared, kind


@SLOW
def test_a_state_that_is_carried_from_step_to_step(backends: list[Backend], tmp_path: Path):
    """It is far out of proportion to what the place of Adam's epsilon makes of the updates."""
    edits = [
        ("train_state.py", "SGD(model.parameters(), lr=0.1)", "Adam(model.parameters(), lr=0.01)"),
        ("train_state_fit.py", "SGD(0.1)", "Adam(0.01, epsilon=1e-8)"),
        ("train_state_fit.py", "use_bias=False", "use_bias=False, stateful=True"),
    ]
    result = compared_after("state", edits, backends, tmp_path)
    assert [cause.id for cause in result.causes] == ["state.carried", "adam.epsilon_placement"]
    assert result.causes[0].where == "lstm"


LABEL = [("train_gan_fit.py", "self.criterion(ops.zeros", "self.criterion(0.1 * ops.ones")]
OTHER_LABEL = [("train_gan_fit.py", "against = self.criterion(ops.ones", "against = self.criterion(ops.zeros")]
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
    "gan's second label": ("gan", OTHER_LABEL, [("code.function", "ones", "zeros")]),
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
SAMPLE = ("gan's optimizers", "penalty", "attack", "pairs' temperature")


@pytest.mark.parametrize(
    ("name", "edits", "told"), sampled([pytest.param(*row, id=name) for name, row in STEPS.items()], *SAMPLE)
)
def test_steps_that_make_what_their_models_are_given(
    name: str, edits: Edits, told: list[tuple[str, Any, Any]], backends: list[Backend], tmp_path: Path
):
    """By random numbers, another model or an attack: they begin with a batch, and what they make of it is compared.

    A change of a loop's code holds for the runs of the script that begin anew.
    """
    result = compared_after(name, edits, backends, tmp_path)
    assert [(cause.id, cause.torch, cause.keras) for cause in result.causes] == told
    assert result.verdict == ("diverged" if told else "match")
    for kind in ("activation", "gradient", "update", "parameter"):
        assert result.checks[kind].compared, kind
    assert name not in ("attack", "views", "pairs") or result.checks["loss"].compared
    assert any("before they take a batch" in each for each in result.not_compared)


@SLOW  # a target beside the model is run below
@pytest.mark.usefixtures("verdicts_only")
def test_a_target_within_a_model_that_follows_faster(backends: list[Backend], tmp_path: Path):
    """It begins as a copy on both sides, so that the second step is the first to part."""
    edit = ("train_views_fit.py", "0.75 * follower + 0.25", "0.25 * follower + 0.75")
    first = compared_after("views", [edit], backends, tmp_path).first_divergence
    assert first and (first.step, first.kind) == (1, "loss")


OTHER_RATE = [("train_values_loop.py", "slow.assign(0.9 * slow + 0.1", "slow.assign(0.1 * slow + 0.9")]


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize(("edits", "first"), [pytest.param([], None, marks=SLOW), (OTHER_RATE, (1, "loss"))])
def test_loops_that_train_on_their_own_batches(
    edits: Edits, first: tuple[int, str] | None, backends: list[Backend], tmp_path: Path
):
    """If they are the same: then no tensor of the loss has to be known. The target network begins as the other does."""
    result = compared_after("values", edits, backends, tmp_path)
    found = result.first_divergence
    assert (found and (found.step, found.kind)) == first
    assert any("train on their own" in each for each in result.not_compared)


@pytest.mark.usefixtures("verdicts_only")
def test_loops_with_other_batches_are_given_those_of_pytorch(backends: list[Backend], tmp_path: Path):
    """Which tensor of this loss is Keras's target is not told then: that a right port parts is a known gap."""
    result = compared_after(
        "values", [("train_values_loop.py", "default_rng(0)", "default_rng(1)")], backends, tmp_path
    )
    assert any("both were given the batches of train_values.py" in each for each in result.not_compared)


RATE = [("train_average_loop.py", "0.9 * average + 0.1", "0.1 * average + 0.9")]


@pytest.mark.parametrize(("edits", "told"), [pytest.param([], [], marks=SLOW), (RATE, [("average.rate", 0.9, 0.1)])])
def test_a_target_network_and_a_mask_of_the_batch(
    edits: Edits, told: list[tuple[str, float, float]], backends: list[Backend], tmp_path: Path
):
    result = compared_after("average", edits, backends, tmp_path)
    assert result.verdict == ("diverged" if told else "match"), result
    assert [(each.id, each.torch, each.keras) for each in result.causes] == told


TO_FROM = [("train_chain_loop.py", "states[:, :-1], states[:, 1:]", "states[:, 1:], states[:, :-1]")]
UNMASKED = [("train_chain_loop.py", "tf.where(mask[:, t : t + 1], step, total)", "step")]


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        pytest.param([], [], marks=SLOW),  # with a further input it is compared below
        pytest.param(TO_FROM, [("gather.order", "as they are", "indices exchanged", "train_chain.py:22)")], marks=SLOW),
        pytest.param(UNMASKED, [("mask.missing", ">", "left out", "train_chain.py:")], marks=SLOW),
    ],
)
def test_a_loss_that_reads_weights_of_the_model(
    edits: Edits, told: list[tuple[str, str, str, str]], backends: list[Backend], tmp_path: Path
):
    result = compared_after("chain", edits, backends, tmp_path)
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


@SLOW  # those by hand are run below
@pytest.mark.parametrize(
    ("name", "edits", "told"), [pytest.param(*row, id=name) for name, row in SEVERAL_DEVICES.items()]
)
def test_scripts_for_several_devices_run_as_one_rank_and_one_replica(
    name: str, edits: Edits, told: list[tuple[str, Any, Any]], backends: list[Backend], tmp_path: Path
):
    """Also those for GPUs, where there are none."""
    result = compared_after(name, edits, backends, tmp_path)
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
    ("name", "edits"),
    [("ranks", [*BY_HAND, *SOFT, *FROZEN]), ("chain", SEVERAL)],
    ids=["targets and weights", "inputs"],
)
def test_what_a_step_makes_of_its_targets_takes_beside_its_input_and_leaves_frozen(
    name: str, edits: Edits, backends: list[Backend], tmp_path: Path
):
    result = compared_after(name, edits, backends, tmp_path)
    assert result.verdict == "match" and not result.causes, result
    assert result.checks["loss"].compared and result.checks["update"].compared
    if name == "ranks":
        assert any("frozen weights" in each for each in result.assumptions)
        assert any("train_ranks.py and train_ranks_" in each and "devices" in each for each in result.not_compared)


@SLOW
def test_a_loss_of_each_sample_is_differentiated_as_their_sum(backends: list[Backend], tmp_path: Path):
    result = compared_after("twice", [("train_twice_loop.py", "tf.reduce_mean(alike", "(alike")], backends, tmp_path)
    assert [(each.id, each.torch, each.keras) for each in result.causes] == [("loss.normalisation", 1.0, 16.0)], result


@SLOW
def test_what_follows_an_update_that_was_not_recorded_is_no_first_difference(backends: list[Backend], tmp_path: Path):
    """The parameters behind the second step are not; its update is the first in which a momentum is felt."""
    result = compared_after(
        "triplet", [("train_triplet_fit.py", "SGD(0.1)", "SGD(0.1, momentum=0.9)")], backends, tmp_path
    )
    assert [(each.id, each.torch, each.keras) for each in result.causes] == [("sgd.momentum", 0.0, 0.9)], result
    assert result.first_divergence and result.first_divergence.kind == "update"


def test_one_target_of_several_losses_may_be_several_of_fit(backends: list[Backend], tmp_path: Path):
    edits = [
        ("train_heads.py", "nn.Linear(16, 1)", "nn.Linear(16, CLASSES)"),
        ("train_heads.py", "functional.mse_loss(size, sizes)", "functional.cross_entropy(size, kinds)"),
        ("train_heads_fit.py", "layers.Dense(1)", "layers.Dense(CLASSES)"),
        ("train_heads_fit.py", '"size": "mse"', '"size": keras.losses.CategoricalCrossentropy(from_logits=True)'),
        ("train_heads_fit.py", '"size": draw(size=(64, 1))', '"size": kinds'),
    ]
    result = compared_after("heads", edits, backends, tmp_path)
    assert result.verdict == "match" and not result.causes, result
    assert result.checks["loss"].compared and result.checks["update"].compared


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("", "", []),
        pytest.param(
            "self.soft(wanted, ops.softmax(y_pred / 3))",
            "self.soft(ops.softmax(y_pred / 3), wanted)",
            ["function.arguments"],
            marks=SLOW,
        ),
        pytest.param("training=False", "training=training", ["dropout.rate"], marks=SLOW),
        pytest.param("teacher.trainable = False", "", ["gradient.missing"], marks=SLOW),
    ],
    ids=["right", "arguments", "dropout", "trained"],
)
def test_a_teacher_beside_the_model_has_pytorchs_weights(
    before: str, after: str, named: list[str], backends: list[Backend], tmp_path: Path
):
    result = compared_after("teacher", [("train_teacher_fit.py", before, after)], backends, tmp_path)
    assert result.verdict == ("diverged" if named else "match"), result
    assert [cause.id for cause in result.causes] == named
    assert any("teacher.0.weight" in each for each in result.assumptions) != (named == ["gradient.missing"])


@SLOW
def test_adams_epsilon_hides_no_gradient_of_a_later_step(backends: list[Backend], tmp_path: Path):
    """In a further run PyTorch adds it where Keras does: then a slight difference is none of the epsilon's."""
    larger = "gradients = [g * (1 + 0.02 * tf.cast(optimizer.iterations > 0, g.dtype)) for g in gradients]"
    edits = [
        ("train_twice.py", "SGD(model.parameters(), lr=0.1)", "Adam(model.parameters(), lr=0.01, eps=1e-4)"),
        ("train_twice_loop.py", "SGD(0.1)", "Adam(0.01, epsilon=1e-4)"),
        ("train_twice_loop.py", "    optimizer.apply", f"    {larger}\n    optimizer.apply"),
    ]
    result = compared_after("twice", edits, backends, tmp_path)
    assert [each.id for each in result.causes] == ["gradient.scale", "adam.epsilon_placement"], result
    assert (result.first_divergence.kind, result.first_divergence.step) == ("gradient", 1)
    right = compared_after("twice", edits[:2], backends, tmp_path / "right")
    assert [each.id for each in right.causes] == ["adam.epsilon_placement"], right


@SLOW
@pytest.mark.parametrize("weight", [0.5, 0.25])
def test_several_targets_are_those_of_their_losses(weight: float, backends: list[Backend], tmp_path: Path):
    edits = [("train_heads_fit.py", '"size": 0.5}', f'"size": {weight}}}')]
    result = compared_after("heads", edits, backends, tmp_path)
    assert result.verdict == ("match" if weight == 0.5 else "diverged"), result
    assert [(each.id, each.torch, each.keras) for each in result.causes] == (
        [] if weight == 0.5 else [("compile.loss_weights", 0.5, weight)]
    )
    assert result.checks["loss"].compared and result.checks["update"].compared


@pytest.mark.usefixtures("verdicts_only")
@pytest.mark.parametrize("second", sampled(["other", "x"], "x"))
def test_a_model_is_called_twice_in_a_step(second: str, backends: list[Backend], tmp_path: Path):
    edits = [("train_twice_loop.py", "model(other, training", f"model({second}, training")]
    result = compared_after("twice", edits, backends, tmp_path)
    assert result.verdict == ("match" if second == "other" else "diverged"), result
    assert result.checks["loss"].compared and result.checks["update"].compared
