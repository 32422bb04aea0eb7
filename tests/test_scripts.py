"""Pairs of training scripts, from the command or the file to the verdict: what a user runs is what is compared."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from edited_scripts import SCRIPTS, SLOW, Edits, compared_after, matches

from parity.asserts import Session
from parity.core.errors import UsageError
from parity.core.script import framework
from parity.pairs import file as files
from parity.pairs.script_counterparts import ignored_as
from parity.pairs.script_steps import axes
from parity.results import Report
from parity.runtime.backend import Backend
from parity.subjects import compared_folders
from parity.subjects.run import RecordedScript
from parity.trace.manifest import Trace

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
    result = compared_after(name, edits, backends, tmp_path)
    assert result.verdict == "diverged" and cause in [each.id for each in result.causes]


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
    result = compared_after("fit", edits, backends, tmp_path)
    assert matches(result) if not told else [each.id for each in result.causes] == told, result.causes


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
    result = compared_after("fit", [*WEIGHED, *edits], backends, tmp_path)
    assert result.verdict == ("match" if edits else "diverged"), result
    assert result.first_divergence is None or result.first_divergence.kind == "loss"


def test_what_a_script_does_between_its_batches_is_run(backends: list[Backend], tmp_path: Path):
    result = compared_after("fit", [("train_fit.py", FIT, BATCHES)], backends, tmp_path)
    assert result.verdict == "match" and result.checks["update"].compared
    assert not any("TerminateOnNaN" in each for each in result.not_compared)


@pytest.mark.usefixtures("verdicts_only")
def test_another_batch_size_and_data_of_another_scale_are_findings(backends: list[Backend], tmp_path: Path):
    """With a rate of zero it is also told that no step changes a parameter."""
    edits = [("batch_size=24", "batch_size=16"), ("normal(size", "normal(scale=255, size"), ("SGD(rate)", "SGD(0.0)")]
    of_both = [("train.py", "lr=args.lr", "lr=0.0"), *(("train_fit.py", *each) for each in edits)]
    result = compared_after("fit", of_both, backends, tmp_path)
    found = {finding.id: finding.message for finding in result.findings}
    assert result.verdict == "match" and found.keys() >= {"script.batch_size", "script.data"}
    assert "24" in found["script.batch_size"] and "16" in found["script.batch_size"]
    assert "its root mean square is 25" in found["script.data"]
    (told,) = [each for each in result.not_compared if "what updates do" in each]
    assert told.startswith("what updates do to conv.weight, conv.bias, ")


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
    result = compared_after("loop", edits, backends, tmp_path)
    assert result.verdict == "match" and "clip.epsilon" in [cause.id for cause in result.expected]
    assert "4 steps, as asked for: train.py ends after 2" in result.not_compared


def _decayed(times: float) -> Edits:
    applied = f"[{times} * v + g for g, v in zip(gradients, model.trainable_variables)]\n        optimizer.apply"
    return [
        ("train.py", "lr=args.lr)", "lr=args.lr, weight_decay=0.01)"),
        ("train_loop.py", "optimizer.apply", f"gradients = {applied}"),
    ]


# Keras flattens channels last, and PyTorch channels first.
DROPPED_PIXELS = [
    ("train.py", ".permute(0, 2, 3, 1)", ""),
    ("train.py", "self.dropout(torch.relu(self.hidden(x)))", "torch.relu(self.hidden(self.dropout(x)))"),
    ("train_loop.py", "self.dropout(self.hidden(self.flatten(x)), training=training)",
        "self.hidden(self.dropout(self.flatten(x), training=training))"),
]  # fmt: skip


def test_weight_decay_in_the_gradients_is_that_of_an_optimizer(backends: list[Backend], tmp_path: Path):
    """Both steps scale their batch and drop its flattened pixels; the data of the scripts tell where it is made."""
    result = compared_after("loop", [*_decayed(0.01), *SCALED_ALIKE, *DROPPED_PIXELS], backends, tmp_path)
    assert matches(result) and not any("TerminateOnNaN" in each for each in result.not_compared)
    assert not [finding for finding in result.findings if finding.id.startswith("script.")]
    assert any("the weight decay that the other's optimizer adds" in each for each in result.assumptions)


@SLOW
def test_another_weight_decay_in_the_gradients_is_named(backends: list[Backend], tmp_path: Path):
    result = compared_after("loop", _decayed(0.02), backends, tmp_path)
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
    assert compared_after("loop", edits, backends, tmp_path).verdict == "diverged"


@SLOW
@pytest.mark.parametrize("edits", [OF_KERAS, SCALED_BEFORE], ids=["loss", "before"])
def test_what_both_steps_make_of_a_batch_or_one_makes_before(edits: Edits, backends: list[Backend], tmp_path: Path):
    """The data of the two scripts tell where it is made."""
    assert matches(compared_after("loop", edits, backends, tmp_path))


@SLOW
@pytest.mark.parametrize("within", [True, False])
def test_a_constant_of_a_loop_in_a_function(within: bool, backends: list[Backend], tmp_path: Path):
    """The loop of train_loop.py stands in main(), whose code is changed, or that of a function which it calls."""
    capped, written_out = "(lambda x: {0} * {1}.tanh(x / {0}))({2})", "{0} * {1}.tanh({2} / {0})"
    form = capped if within else written_out
    edits = [
        ("train.py", "model(images), labels", f"{form.format(3.0, 'torch', 'model(images)')}, labels"),
        ("train_loop.py", "model(images, training=True)", form.format(2.0, "tf", "model(images, training=True)")),
    ]
    result = compared_after("loop", edits, backends, tmp_path)
    assert ("code.constant", 3.0, 2.0) in [(each.id, each.torch, each.keras) for each in result.causes], result


@SLOW
def test_a_step_that_begins_with_a_batch_is_also_run_as_a_graph(backends: list[Backend], tmp_path: Path):
    result = compared_after("loop", [*OF_KERAS, *TRACED], backends, tmp_path)
    assert "fit.graph" in [each.id for each in result.causes], result


@pytest.mark.parametrize(
    ("edits", "verdict"), [("[items, users]", "match"), pytest.param("[users, items]", "diverged", marks=SLOW)]
)
def test_inputs_are_those_that_hold_the_same_data(edits: str, verdict: str, backends: list[Backend], tmp_path: Path):
    edit = ("train_ratings_fit.py", "fit([items, users]", f"fit({edits}")
    result = compared_after("ratings", [edit], backends, tmp_path)
    assert result.verdict == verdict
    assert not any("of one shape" in each for each in result.assumptions)


OTHER_DATA = ("train_ratings_fit.py", "users, items = RATINGS.T", "users, items = RATINGS[::-1].T")


@pytest.mark.usefixtures("verdicts_only")
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
    result = compared_after("ratings", edits, backends, tmp_path)
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
    assert compared_after("heads", edits, backends, tmp_path).verdict == verdict


def test_scripts_that_train_alike_match_until_the_first_fit_ends(backends: list[Backend], tmp_path: Path):
    """By `fit`, which ends with an average of the weights; a loop is compared above, whose gradients decay them."""
    edits = [("train_fit.py", "epochs=2", "epochs=1"), ("train_fit.py", "SGD(rate)", "SGD(rate, use_ema=True)")]
    result = compared_after("fit", edits, backends, tmp_path)
    assert matches(result), result
    assert not [finding for finding in result.findings if finding.id.startswith("script.")]
    assert any("TerminateOnNaN" in each for each in result.not_compared)
    assert any("train_fit.py's first call of fit" in each and "after 2" in each for each in result.not_compared)


UNMASKED = [("train_lengths_loop.py", ", mask=mask", ", mask=tf.ones_like(mask)")]
OVER_ALL = [("train_lengths_loop.py", "/ tf.reduce_sum(mask)", "/ tf.cast(tf.size(tags), logits.dtype)")]


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([], None),
        *(pytest.param(*each, marks=SLOW) for each in ((UNMASKED, "mask.missing"), (OVER_ALL, "loss.normalisation"))),
    ],
)
def test_lengths_and_paddings(edits: Edits, told: str | None, backends: list[Backend], tmp_path: Path):
    """PyTorch's model alone is given lengths, and each script pads to the longest of its own batches."""
    result = compared_after("lengths", edits, backends, tmp_path)
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
        pytest.param("train_parts.py", "lr=0.2", "lr=0.1", "sgd.learning_rate", marks=SLOW),
        pytest.param("train_teacher.py", "0.75 * soft", "0.5 * soft", "sides.switch", marks=SLOW),
        pytest.param("train_fit.py", "decay_rate=0.5", "decay_rate=0.25", "sides.switch", marks=SLOW),
        pytest.param("train_loop.py", "SGD(0.05)", "SGD(0.05, weight_decay=0.5)", "weight_decay.value", marks=SLOW),
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
        compared_after("fit", edits, backends, tmp_path)


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
