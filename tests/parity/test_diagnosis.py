"""Who is guilty and why, on traces of a numpy network with mistakes in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import Array, Fault, Seen, by_hand, record

from parity.config import cases
from parity.config.pair import INTERNAL_ERROR
from parity.diagnose import place
from parity.diagnose.diagnosis import examined
from parity.diagnose.formula import require
from parity.diagnose.layers import LAYERS
from parity.diagnose.layers.call import Call
from parity.results import CaseResult, Divergence
from parity.trace import keys
from parity.trace.layout import Layout
from parity.verdict.traces import Unequal

Mistake = Callable[[Seen, dict[str, Array]], Array]


def made(mistake: Mistake) -> Fault:
    """A fault that knows the last value of everything else, by key."""
    known: dict[str, Array] = {}

    def fault(seen: Seen) -> Array:
        known[keys.key(seen.kind, seen.name)] = seen.value
        return mistake(seen, known)

    return fault


def without_bias(seen: Seen, known: dict[str, Array]) -> Array:
    is_it = (seen.kind, seen.name) == ("activation", "linear1")
    return seen.value - known["parameter/linear1.bias"] if is_it else seen.value


def without_relu(seen: Seen, known: dict[str, Array]) -> Array:
    return known["input/relu"] if (seen.kind, seen.name) == ("activation", "relu") else seen.value


def both(seen: Seen, known: dict[str, Array]) -> Array:
    return without_relu(seen._replace(value=without_bias(seen, known)), known)


def somehow(size: float) -> Mistake:
    """Noise on what the ReLU returns, the same in every run."""

    def mistake(seen: Seen, known: dict[str, Array]) -> Array:
        if (seen.kind, seen.name) != ("activation", "relu"):
            return seen.value
        noise = np.random.default_rng(0).normal(size=seen.value.shape) * size
        # Relative: an element that is zero on one side alone is seen in float32, however small it is.
        return (seen.value * (1 + noise)).astype(seen.value.dtype)

    return mistake


def compared(folder: Path, fault: Fault | None = None, **side: Any) -> CaseResult:
    faulty = {"fault": fault} if fault else {}
    reference = record(folder / "torch", "torch", backwards=True)
    return examined(reference, record(folder / "keras", "keras", **faulty, **side)).result


def named(result: CaseResult) -> list[tuple[str, str]]:
    return [(cause.id, cause.where) for cause in result.causes]


def test_a_module_is_guilty_whose_input_agrees(tmp_path):
    result = compared(tmp_path, made(without_bias))
    assert (result.first_divergence.step, result.first_divergence.kind) == (0, "activation")
    assert result.first_divergence.name == "linear1"
    (cause,) = result.causes
    assert (cause.id, cause.where) == ("linear.bias", "linear1")
    assert cause.torch != cause.keras
    assert "keras is reproduced to" in cause.evidence


def test_two_faults_at_once_are_both_listed(tmp_path):
    result = compared(tmp_path, made(both))
    assert named(result) == [("linear.bias", "linear1"), ("relu.dropped", "relu")]


@pytest.mark.parametrize("size", [1e-3, 2.0**-30])
def test_without_evidence_the_cause_is_unknown(tmp_path, size):
    result = compared(tmp_path, made(somehow(size)))
    assert result.verdict == ("diverged" if size == 1e-3 else "subprecision")
    assert result.first_divergence.name == "relu"
    (cause,) = result.causes
    assert (cause.id, cause.where, cause.torch, cause.keras) == ("unknown", "relu", None, None)
    assert "relu.dropped" in cause.evidence


def test_an_optimizer_is_explained_by_its_own_gradients(tmp_path):
    result = compared(tmp_path, weight_decay=0.125)
    (cause,) = result.causes
    assert (cause.id, cause.torch, cause.keras) == ("weight_decay.value", 0.0, 0.125)


def test_a_fault_in_the_forward_does_not_hide_one_in_the_optimizer(tmp_path):
    result = compared(tmp_path, made(without_relu), weight_decay=0.125)
    assert [name for name, _ in named(result)] == ["relu.dropped", "weight_decay.value"]


@pytest.mark.parametrize(("first", "told"), [(0, True), (1, False)])
def test_what_is_handed_on_alike_at_first_may_differ_as_weights_do(tmp_path, first, told):
    """After training went apart, what is made between modules of tensors that are not compared differs as well."""

    def handed_on(seen: Seen, known: dict[str, Array]) -> Array:
        if (seen.kind, seen.name) != ("input", "linear2") or seen.step is None or seen.step < first:
            return seen.value
        noise = np.random.default_rng(0).normal(size=seen.value.shape)
        return (seen.value * (1 + noise)).astype(seen.value.dtype)

    result = compared(tmp_path, made(handed_on), weight_decay=0.125)
    assert ("unknown" in dict(named(result))) is told
    assert "weight_decay.value" in dict(named(result))


def test_a_gradient_that_one_side_has_not(tmp_path):
    def dropped(seen: Seen) -> Array | None:
        return None if (seen.kind, seen.name) == ("gradient", "linear1.bias") else seen.value

    result = compared(tmp_path, dropped)
    assert ("gradient.missing", "linear1.bias") in named(result)


def test_a_gradient_vanishes_where_zeros_are_handed_on(tmp_path):
    """That backward does not reach the parameter is no cause then: its gradient is a product with zeros."""

    def zeros(seen: Seen) -> Array | None:
        if (seen.kind, seen.name) == ("gradient", "linear2.weight"):
            return None
        return np.zeros_like(seen.value) if (seen.kind, seen.name) == ("input", "linear2") else seen.value

    result = compared(tmp_path, zeros)
    assert ("gradient.missing", "linear2.weight") not in named(result)


def test_the_side_that_is_named_first_may_be_at_fault(tmp_path):
    reference = record(tmp_path / "torch", "torch", fault=made(without_bias))
    result = examined(reference, record(tmp_path / "keras", "keras")).result
    assert named(result) == [("linear.bias", "linear1")]


def test_a_layout_that_differs_is_placed_and_named(tmp_path):
    tensors = {
        run: {"step-000000": {"activation/linear1": np.ones(3, np.float64 if run == "high" else np.float32)}}
        for run in ("low", "high")
    }
    case = cases.resolve("simple_block/round_robin")
    sides = [
        by_hand(
            tmp_path / name,
            tensors,
            name,
            case,
            layout=Layout(devices=["CPU"] * 2, parameters={}, compute={"linear1": [place]}, backward={"linear1": [0]}),
        )
        for name, place in (("torch", 0), ("keras", 1))
    ]
    result = examined(*sides).result
    assert (result.first_divergence.kind, result.first_divergence.name) == ("layout", "linear1")
    assert named(result) == [("placement.layer", "linear1")]
    assert (result.causes[0].torch, result.causes[0].keras) == ("on 0", "on 1")


LAYER = "encoder.layers.0"
MODULES = {"encoder": "Encoder", LAYER: "Layer", f"{LAYER}.attention": "attention", f"{LAYER}.norm": "layer_norm"}


def divergence(kind: str, name: str) -> Divergence:
    return Divergence(step=0, kind=kind, name=name, replica=0, bits=1.0, reason="apart")


@pytest.mark.parametrize(
    ("inputs", "owner"),
    [
        ([f"{LAYER}.norm"], LAYER),  # a shortcut is missing in the layer
        ([f"{LAYER}.attention", LAYER], "encoder"),  # positions are added before the layer
        ([f"{LAYER}.attention", LAYER, "encoder"], "(model)"),
        ([f"{LAYER}.mlp.0"], LAYER),  # a sequence passes on what it is given
        ([f"{LAYER}.mlp.2"], f"{LAYER}.mlp"),
    ],
)
def test_what_happens_between_modules_is_the_fault_of_the_one_around_them(inputs, owner):
    unequal = [Unequal(0, 0, "input", name) for name in inputs]
    modules = MODULES | {f"{LAYER}.mlp": "Sequential", f"{LAYER}.mlp.0": "linear", f"{LAYER}.mlp.2": "linear"}
    moved = place.responsible_module(divergence("input", inputs[0]), unequal, modules)
    assert (moved.kind, moved.name) == ("activation", owner)
    assert inputs[0] in moved.reason


def test_noise_is_placed_where_it_began():
    noisier = {"keras": ["activation/a", "activation/b", "gradient/w"]}
    assert place.start_of_noise(divergence("activation", "b"), noisier).name == "a"
    assert place.start_of_noise(divergence("activation", "c"), noisier).name == "c"


BEFORE = ["activation/a.c", "input/a.b", "activation/a.b"]


@pytest.mark.parametrize(
    ("name", "unshared", "recorded", "at"),
    [
        ("a.b", ["input/a.b"], BEFORE, "a"),  # what a computes of a.c's output could not be compared
        ("a.b", [], BEFORE, "a.b"),
        ("a.b", ["input/a.b"], BEFORE[1:], "a.b"),  # the first that a calls
        ("a.b", ["input/a.b"], ["activation/d", *BEFORE[1:]], "a.b"),  # another module's before it
        ("d", ["input/d"], ["activation/a", "input/d", "activation/d"], "d"),  # only the whole model is around it
    ],
)
def test_a_module_that_functions_feed_is_not_at_fault_alone(name, unshared, recorded, at):
    first = divergence("activation", name)
    modules = {"a": "Block", "a.b": "linear", "a.c": "linear", "d": "x"}
    found = place.module_around_functions(first, unshared, recorded, modules)
    assert (found.name, found.kind) == (at, "activation")
    assert (found == first) == (at == name)


@pytest.mark.parametrize(
    ("stem", "key", "value"),
    [
        ("step-000000", "parameter/w", np.ones(6)),
        ("step-000000", "loss/loss", np.ones((1, 2))),
        ("step-000000", "sample/indices", np.ones((), np.int64)),
        ("step-000000", "gradient/w", np.zeros((0, 3))),
        ("initial", "parameter/w", np.full((2, 3), np.inf)),
    ],
)
def test_whatever_was_recorded_the_verdict_stands(tmp_path, stem, key, value):
    sound = recorded()
    stands(tmp_path, sound, sound | {stem: sound[stem] | {key: value}})


def test_parameters_of_truth_values_are_no_evidence(tmp_path):
    sound = recorded()
    truth, slot = {"parameter/w": np.ones((2, 3), bool)}, {"optimizer_state/w.momentum_buffer": np.ones((2, 3))}
    broken = {stem: sound[stem] | truth for stem in sound}
    stands(tmp_path, sound | {"step-000000": sound["step-000000"] | slot}, broken)


def recorded() -> dict[str, dict[str, Array]]:
    """The initial state and one step."""
    step = {
        "sample/indices": np.arange(2),
        "activation/(model)": np.ones((2, 3)),
        "loss/loss": np.ones(()),
        "gradient/w": np.ones((2, 3)),
        "parameter/w": np.zeros((2, 3)),
    }
    return {"initial": {"parameter/w": np.ones((2, 3))}, "step-000000": step}


def stands(folder: Path, sound: dict[str, dict[str, Array]], broken: dict[str, dict[str, Array]]) -> None:
    """The verdict on such recordings is given, and no formula fails."""
    one, other = ({"low": files, "high": files} for files in (sound, broken))
    sides = by_hand(folder / "torch", one), by_hand(folder / "keras", other, "keras")
    result = examined(*sides).result
    assert result.verdict == "diverged"
    assert INTERNAL_ERROR not in [cause.id for cause in result.causes]


DECAY = "weight_decay.value"


def mistaken(call: Call, *_: Any, **__: Any) -> dict[str, Array]:
    return {"output": call.inputs[0] + call.offset}  # a typo in a formula


def plant(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> None:
    """Give ReLU's formula other parts."""
    layer = LAYERS["relu"]
    monkeypatch.setitem(LAYERS, "relu", layer._replace(formula=layer.formula._replace(**parts)))


@pytest.mark.parametrize("part", ["predict", "check"])
def test_a_mistake_in_a_formula_is_reported_and_hides_nothing_else(tmp_path, monkeypatch, part):
    plant(monkeypatch, **{part: mistaken})
    result = compared(tmp_path, made(both), weight_decay=0.125)
    assert result.verdict == "diverged"
    assert named(result) == [("linear.bias", "linear1"), (DECAY, "linear1.weight"), ("internal_error", "relu")]
    error = result.causes[-1]
    assert (error.torch, error.keras) == (None, None)
    assert "AttributeError in formula.py, line" in error.evidence
    assert "'offset'" in error.evidence


def test_a_mistake_in_a_formula_is_reported_where_it_is_asked_about_a_low_run(tmp_path, monkeypatch):
    plant(monkeypatch, predict=mistaken)

    def coarse(seen: Seen) -> Array:
        is_low = seen.value.dtype == np.float32 and (seen.kind, seen.name) == ("activation", "relu")
        return seen.value.astype(np.float16).astype(np.float32) if is_low else seen.value

    result = compared(tmp_path, coarse)
    assert ("internal_error", "relu") in named(result)


def test_a_formula_that_does_not_fit_leaves_the_cause_unknown(tmp_path, monkeypatch):
    def unfit(*_: Any, **__: Any) -> None:
        require(False, "something else")

    plant(monkeypatch, predict=unfit)
    result = compared(tmp_path, made(both))
    assert named(result) == [("linear.bias", "linear1")]
    assert named(compared(tmp_path / "relu", made(without_relu))) == [("unknown", "relu")]
