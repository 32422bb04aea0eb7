"""What parts after an equal forward pass is named by experiment: losses, gradients, buffers and optimizers.

The models are those of tests/pairs/later_torch.py and its counterpart.
"""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from judged import passes_strict
from slow import sampled

from parity.pairs import file
from parity.pairs.compare import compared
from parity.results import CaseResult

FILE = Path(__file__).parent / "pairs" / "later.toml"
Judge = Callable[[dict[str, Any]], CaseResult]


class Row(NamedTuple):
    """A difference: changes to the pair's file, the only cause's id and values, and words of its evidence."""

    changes: dict[str, Any]
    cause: str
    torch: Any
    keras: Any
    evidence: str = ""


def models(torch: str, keras: str) -> dict[str, Any]:
    return {"pair.torch": f"later_torch:{torch}", "pair.keras": f"later_keras:{keras}"}


def losses(torch: str, keras: str) -> dict[str, Any]:
    return {"train.torch_loss": f"later_torch:{torch}", "train.keras_loss": f"later_keras:{keras}"}


def optimizers(torch: str, keras: str) -> dict[str, Any]:
    return {"train.torch_optimizer": f"later_torch:{torch}", "train.keras_optimizer": f"later_keras:{keras}"}


def steps(torch: str, keras: str) -> dict[str, Any]:
    return {"train.torch_step": f"later_torch:{torch}", "train.keras_step": f"later_keras:{keras}"}


TOGETHER, EACH, ELEMENT = "all parameters, at 0.05", "each parameter, at 0.05", "each element, at 0.002"
FAITHFUL = {
    "step": steps("step", "step"),
    "calls in another order": steps("bootstrapped_step", "bootstrapped_step"),
    "loss": losses("loss", "loss"),
    "optimizer": optimizers("own", "own"),
    "momentum": optimizers("momentum", "momentum"),  # whose forms differ only under a schedule
    "momentum, one step": optimizers("momentum", "momentum") | {"train.steps": 1},
    "warmup": optimizers("warmed_up", "warmed_up"),
    "groups": optimizers("decayed_matrices", "decayed_matrices"),
}
ROWS = {
    "padding": Row({"pair.torch_kwargs.padding": 3}, "embedding.padding_idx", 3, None,
        "torch gives row 3 of table.weight no gradient, keras does"),
    "detached": Row(models("Detached", "Model"), "gradient.stopped", "detach", "no detach", "later_torch.py:23"),
    "stopped": Row(models("Model", "Stopped"), "gradient.stopped", "no stop_gradient", "stop_gradient",
        "later_keras.py:21"),
    "halved": Row(models("Halved", "Model"), "gradient.stopped", "detach", "no detach",
        "in keras is 2 times that in torch"),
    "frozen": Row(models("Frozen", "Model"), "gradient.stopped", "no_grad", "no no_grad", "later_torch.py:37"),
    "averaged": Row(models("Averaged", "Averaged"), "code.constant", 0.1, 0.05, "is 0.5 times that in torch"),
    "penalised": Row(models("Model", "Penalised"), "loss.added", "adds none", "Penalty", "later_keras.py:46"),
    "regularised": Row(models("Model", "Regularised"), "loss.added", "adds none", "L2"),
    "regularised more": Row(
        models("Model", "Regularised")
        | optimizers("sgd", "cut_sgd")
        | {"train.torch_step": "later_torch:penalised_step"},
        "regularizer.l2",
        0.001,
        0.003,
    ),
    "smooth": Row(losses("smooth_loss", "loss"), "code.constant", 0.15, 0.0, "later_torch.py:71"),
    "object": Row(losses("object_loss", "loss"), "cross_entropy.label_smoothing", 0.07, 0.0),
    "spread": Row(models("Wide", "Wide") | losses("spread_loss", "spread_loss"), "cross_entropy.label_smoothing",
        "all classes", "the other classes"),
    "lesser": Row(losses("lesser_loss", "lesser_loss"), "module.wiring", "minimum", "the second alone"),
    "ignoring": Row(losses("ignoring_loss", "loss"), "code.constant", 1, -100, "later_torch.py:98"),
    "weighted": Row(losses("weighted_loss", "weighted_loss"), "code.constant", 0.02, 0.05),
    "unweighted": Row(losses("weighted_loss", "loss"), "code.constant", 0.02, 0.0),
    "focal": Row(losses("focal_loss", "focal_loss"), "focal_loss.gamma", 2.0, 1.5),
    "counted": Row(losses("counted_loss", "counted_loss"), "loss.normalisation", 1.0, 2.1, "21/10 times"),
    "huber": Row(losses("huber_loss", "huber_loss"), "smooth_l1_loss.form", "smooth_l1_loss", "huber_loss"),
    "exchanged": Row(losses("divergence_loss", "divergence_loss"), "function.arguments", "(second, first)",
        "(first, second)"),
    "twice": Row(losses("overlap_loss", "overlap_loss"), "code.constant", 1, 0, "(2 of them)"),
    "another loss": Row(losses("square_loss", "square_loss"), "code.function", "MeanSquaredError", "Huber"),
    "shifted": Row(losses("shifted_loss", "shifted_loss"), "code.slice", ":-1", "1:"),
    "axes": Row(losses("ratio_loss", "ratio_loss"), "reduction.axes", "axes 1, 2", "all axes"),
    "other_beta": Row(optimizers("own", "other_beta"), "adam.beta2", 0.99, 0.98),
    "uncorrected": Row(optimizers("own", "uncorrected"), "adam.bias_correction", "both", "none"),
    "decayed": Row(optimizers("own", "decayed"), "weight_decay.value", 0.0, 0.05),
    "falling": Row(optimizers("own", "falling"), "schedule.factor", 1.0, 0.5),
    "sparse": Row(optimizers("rooted", "rooted"), "optimizer.sparse_gradient", "dense", "IndexedSlices"),
    "nesterov": Row(optimizers("momentum", "nesterov"), "sgd.nesterov", False, True),
    "nesterov of both": Row(optimizers("nesterov", "plain"), "sgd.nesterov", True, False),
    "momentum": Row(optimizers("falling_momentum", "falling_momentum"), "sgd.momentum_form", "rate outside",
        "rate inside, negative"),
    "schedule": Row(optimizers("momentum", "falling_momentum"), "schedule.rate", 0.01, 0.005,
        "learning_rate of step 1"),
    "late": Row(optimizers("warmed_up", "warmed_up_late"), "schedule.offset", 0, -1, "1 step earlier"),
    "decayed biases": Row(optimizers("decayed_matrices", "decayed_sgd"), "weight_decay.value", 0.0, 0.1),
    "not given": Row(optimizers("without_first", "sgd"), "update.frozen", "parameter and optimizer state", "no",
        "to 0 bits"),
    "judged": Row(models("Judged", "Judged") | steps("judged_step", "judged_step"), "relu.slope", 0.25, 0.3),
    "clipped each": Row(steps("together_step", "each_step"), "clip.scope", TOGETHER, EACH),
    "clipped in keras": Row(steps("step", "together_step"), "clip.scope", "none", TOGETHER),
    "clipped in torch": Row(steps("together_step", "step"), "clip.scope", TOGETHER, "none"),
    "clipped in part": Row(steps("part_step", "step"), "clip.scope", TOGETHER, "none"),
    "clipped each in keras": Row(steps("step", "each_step"), "clip.scope", "none", EACH),
    "clipped together": Row(steps("together_step", "together_step"), "clip.epsilon", 1e-6, 0.0),
    "cut off": Row(steps("step", "cut_step"), "clip.value", "none", ELEMENT),
    "cut off in torch": Row(steps("cut_step", "together_step"), "clip.value", ELEMENT, TOGETHER),
    "clipped by the optimizer": Row(optimizers("sgd", "clipped_sgd"), "clip.scope", "none", "each parameter, at 0.01"),
    "cut off by the optimizer": Row(optimizers("clipped_sgd", "cut_sgd"), "clip.value", TOGETHER, ELEMENT),
    "cut rows": Row(optimizers("cut_sgd", "cut_sgd"), "clip.sparse_gradient", "dense", "IndexedSlices"),
    "clipped rows": Row(optimizers("clipped_sgd", "rows_sgd"), "clip.sparse_gradient", "dense", "IndexedSlices"),
}  # fmt: skip


OUTSIDE, INSIDE = "outside the root", "inside the root"
# What the frameworks' own optimizers do otherwise, given the same arguments, to a table of which rows are used twice.
SPARSE = ("optimizer.sparse_gradient", "dense", "IndexedSlices")
OWN = {
    "adam": {("adam.epsilon_placement", "after the correction", "before the correction"), SPARSE},
    "nadam": {("nadam.momentum_decay", 0.004, 1.0), SPARSE},
    "adamax": {("adamax.epsilon_placement", "inside the maximum", "beside the maximum"), SPARSE},
    "adagrad": {("adagrad.accumulator", 0.0, 0.1), ("adagrad.epsilon_placement", OUTSIDE, INSIDE), SPARSE},
    "adadelta": {("adadelta.rho", 0.9, 0.95), SPARSE},
    "rmsprop": {("rmsprop.epsilon_placement", OUTSIDE, INSIDE), SPARSE},
}


@pytest.fixture(scope="module")
def judge(backends, tmp_path_factory) -> Judge:
    numbers = itertools.count()

    def judged(changes: dict[str, Any]) -> CaseResult:
        overrides = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        return compared(file.load(FILE, overrides), backends, tmp_path_factory.mktemp(f"later{next(numbers)}"), False)

    return judged


@pytest.mark.slow
@pytest.mark.parametrize("row", FAITHFUL)
def test_what_is_the_same_matches(row: str, judge: Judge):
    result = judge(FAITHFUL[row])
    assert passes_strict(result) and result.causes == [], result


def test_lists_of_rows_that_are_accepted_are_held_dense(backends, tmp_path):
    changes = [f"{key}={json.dumps(value)}" for key, value in optimizers("rooted", "rooted").items()]
    accepted = f'expect=[{{ cause = "{SPARSE[0]}", where = "*", reason = "rows of a table" }}]'
    result = compared(file.load(FILE, [*changes, accepted]), backends, tmp_path, False)
    assert result.verdict == "match" and [each.keras for each in result.expected] == ["held dense"], result


@pytest.mark.slow
def test_a_schedule_behind_the_steps_is_told(judge: Judge):
    result = judge(optimizers("later_falling", "later_falling"))
    assert passes_strict(result)
    told = "'s learning rate follows a schedule that changes it in none of these steps"
    assert {f"{side}{told}" for side in ("torch", "keras")} <= set(result.not_compared)
    assert not any(told in line for line in judge(optimizers("momentum", "momentum")).not_compared)


@pytest.mark.slow
def test_a_clipping_that_nothing_reached_is_told(judge: Judge):
    told = "keras's optimizer has global_clipnorm=100, which no gradient reached in these steps"
    result = judge(optimizers("sgd", "unclipped_sgd"))
    assert passes_strict(result) and told in result.not_compared
    assert not any("which no gradient" in line for line in judge(optimizers("clipped_sgd", "rows_sgd")).not_compared)


@pytest.mark.parametrize("name", sampled(ROWS, "clipped each"))
def test_the_cause_is_named(name: str, judge: Judge):
    row, result = ROWS[name], judge(ROWS[name].changes)
    assert result.verdict == "diverged"
    (cause,) = result.causes
    assert (cause.id, cause.torch, cause.keras) == (row.cause, row.torch, row.keras), cause
    assert row.evidence in cause.evidence, cause.evidence


@pytest.mark.parametrize("name", sampled(OWN, "adagrad"))
def test_all_that_an_optimizer_of_the_frameworks_does_otherwise_is_named(name: str, judge: Judge):
    result = judge(optimizers(f"repeated_{name}", f"repeated_{name}") | {"train.steps": 3})
    assert {(cause.id, cause.torch, cause.keras) for cause in result.causes} == OWN[name]


@pytest.mark.slow
def test_epsilon_inside_of_the_root_is_named(judge: Judge):
    causes = judge(optimizers("own", "inside")).causes
    assert {cause.id for cause in causes} == {"adam.epsilon_placement", "adam.epsilon"}


@pytest.mark.slow
def test_a_gradient_may_show_what_float32_does_not_see_in_the_forward_pass(judge: Judge):
    result = judge(models("Nudged", "Nudged"))
    (cause,) = result.causes
    assert (result.first_divergence.kind, result.first_divergence.name) == ("gradient", "nudge.shift")
    assert (cause.id, cause.where, cause.torch, cause.keras) == ("nudge.rate", "nudge", 1e-4, 1.001e-4)


@pytest.mark.slow
def test_a_loss_that_differs_with_a_later_batch_is_explained_by_the_forward_pass_on_it(judge: Judge):
    result = judge(models("Padded", "Model"))
    first, (cause,) = result.first_divergence, result.causes
    assert first.step == 1 and first.kind != "loss"
    assert result.reason.startswith("on the batch of step 1: ")
    assert (cause.id, cause.torch, cause.keras) == ("code.function", "masked_fill", "left out")


@pytest.mark.slow
def test_what_no_change_explains_is_described(judge: Judge):
    (cause,) = judge(losses("loss", "squared_loss")).causes
    assert (cause.id, cause.where) == ("unknown", "loss")
    assert cause.evidence.startswith("keras's loss is torch's "), cause.evidence
