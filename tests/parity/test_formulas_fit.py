"""Whatever was recorded, a formula either predicts something or says that it does not fit."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import test_causes_layers
import test_causes_training
import test_wiring
from ml_dtypes import bfloat16
from observations import case, normal, start

from parity.core.arrays import Array
from parity.diagnose import explain, initial_parameters, losses, reductions, samples, wiring
from parity.diagnose.formula import UNSET, Formula, Seen, predicted, values
from parity.diagnose.layers import LAYERS
from parity.diagnose.layers.rounding import at_run_precision

MOST_VALUES = 4  # of each trait that are tried
SOME = 7  # one in so many of the odd low runs is examined; each takes a whole search
ODD: Mapping[str, Callable[[Array], Array]] = {
    "transposed": lambda array: array.T,
    "flat": np.ravel,
    "nothing": lambda array: array[:0] if array.ndim else np.zeros(0),
    "nothing along the last axis": lambda array: array[..., :0] if array.ndim else np.zeros(0),
    "the first half": lambda array: array[: len(array) // 2] if array.ndim else array,
    "half of the channels": lambda array: array[:, : array.shape[1] // 2] if array.ndim > 1 else array,
    "twice": lambda array: np.concatenate([array, array]) if array.ndim else np.stack([array, array]),
    "one more axis": lambda array: array[None],
    "one more axis at the end": lambda array: array[..., None],
    "one number": lambda array: np.zeros((), array.dtype),
    "one element": lambda array: array.reshape(-1)[:1],
    "float32": lambda array: array.astype(np.float32),
    "bfloat16": lambda array: array.astype(bfloat16),
    "integers": lambda array: array.astype(np.int64),
    "bytes": lambda array: array.astype(np.uint8),
    "truth values": lambda array: array.astype(bool),
    "zeros": np.zeros_like,
    "negative": lambda array: ~array if array.dtype == bool else -array,
    "large": lambda array: 1e300 * array,
    "small": lambda array: 1e-300 * array,
    "NaN": lambda array: np.full(array.shape, np.nan),
    "infinite": lambda array: np.full(array.shape, np.inf),
}


def altered(value: Any, alter: Callable[[Array], Array], number: Iterator[int], target: int) -> Any:
    """A part of an observation with its array of that number altered; all of them if the number is -1."""
    match value:
        case np.ndarray():
            return alter(value) if target in (-1, next(number)) else value
        case Seen():
            return value._replace(value=altered(value.value, alter, number, target))
        case dict():
            return {name: altered(each, alter, number, target) for name, each in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*(altered(each, alter, number, target) for each in value))
        case tuple():
            return tuple(altered(each, alter, number, target) for each in value)
    return value


def arrays(observation: Any) -> int:
    """The number of arrays in an observation."""
    count = itertools.count()
    altered(observation, np.asarray, count, -2)
    return next(count)


def without(observation: Any) -> Iterator[Any]:
    """The observation without one of its parameters or buffers."""
    for field in {"parameters", "buffers"} & set(observation._fields):
        held = getattr(observation, field)
        yield from (observation._replace(**{field: {n: held[n] for n in held if n != name}}) for name in held)


def odd_ones(observation: Any) -> Iterator[Any]:
    """The observation with each of its arrays altered in each way, with all of them, and with one parameter less."""
    yield from without(observation)
    with np.errstate(all="ignore"):
        for alter, target in itertools.product(ODD.values(), range(-1, arrays(observation))):
            yield altered(observation, alter, itertools.count(), target)


def ask(formula: Formula[Any], observation: Any, usual: Mapping[str, Any]) -> None:
    """Ask for predictions under a few settings of every trait, also beside other `usual` settings than its own."""
    own = explain.usual_settings(formula, observation)
    for base in (own,) if usual in ({}, own) else (usual, own):
        predicted(formula, observation, dict(base))
        for trait in formula.traits:
            for value in itertools.islice(values(formula, trait, observation, dict(base)), MOST_VALUES):
                predicted(formula, observation, {**base, trait.name: value})


def examples() -> Iterator[tuple[str, Formula[Any], Any]]:
    """Observations for each formula, by name; of those of one name the last is taken."""
    for each in test_causes_layers.EVERY:
        call = each.reference
        yield f"{call.kind}{' in replicas' * (len(call.replicas) > 1)}", LAYERS[call.kind].formula, call
    for _, each in test_causes_training.ALL:
        seen, formula = each.reference, test_causes_training.formula(each.reference)
        later = " in a later step" if getattr(seen, "before", None) is not None else ""
        name = getattr(seen, "name", next(iter(seen.seen.values())).value.dtype)
        yield f"{type(seen).__name__} {name} {seen.case.strategy} {formula.predict.__name__}{later}", formula, seen
    yield "wiring", wiring.FORMULA, test_wiring.junction(test_wiring.X)
    matrix = normal(24, 24)
    out_proj = start(case("transformer/single"), "layer.out_proj.weight", matrix, matrix)
    yield "InitialParameter out_proj", initial_parameters.FORMULA, out_proj


EXAMPLES = {name: (formula, observation) for name, formula, observation in examples()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_formula_predicts_or_does_not_fit(name: str) -> None:
    formula, observation = EXAMPLES[name]
    usual = explain.usual_settings(formula, observation)
    assert UNSET not in usual.values()
    assert predicted(formula, observation, usual)
    for odd in odd_ones(observation):
        ask(formula, odd, usual)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", LAYERS)
def test_a_low_run_is_recomputed_or_does_not_fit(kind: str) -> None:
    formula, high = EXAMPLES[kind]
    low = altered(high, lambda array: array.astype(np.float32), itertools.count(), -1)
    for odd in itertools.islice(odd_ones(low), 0, None, SOME):
        with np.errstate(all="ignore"):
            at_run_precision(formula, high, odd)


@pytest.mark.parametrize(
    ("formula", "setting"),
    [
        (wiring.FORMULA, {"terms": ("nowhere",)}),
        (reductions.FORMULA, {"taken": "mean of replica 99"}),
        (samples.FORMULA, {"replicas": (99, 98)}),
    ],
)
def test_settings_of_the_other_side_may_not_fit(formula: Formula[Any], setting: dict[str, Any]) -> None:
    """What explains one side may name a replica or a tensor that the other does not have."""
    observation = next(observation for own, observation in EXAMPLES.values() if own is formula)
    assert predicted(formula, observation, explain.usual_settings(formula, observation) | setting) == {}


def test_micro_batches_have_the_same_axes() -> None:
    """Else the classes of one lie on an axis that the other does not have."""
    whole = EXAMPLES["LossValue float64 single _cross_entropy"][1]
    target = np.zeros((2, 4, 5), np.int64)
    outputs = normal(2, 4, 3, 5), normal(2, 3)
    mixed = whole._replace(outputs=outputs, targets=(target, np.zeros(2, np.int64)))
    formula = losses.FORMULAS[whole.case.loss.kind]
    ask(formula, mixed, explain.usual_settings(formula, whole))


@pytest.mark.parametrize(
    ("kind", "output", "target"), [("mse", normal(2, 1), np.zeros(0)), ("cross_entropy", normal(3), np.zeros((), int))]
)
def test_a_loss_without_samples_does_not_fit(kind: str, output: Array, target: Array) -> None:
    whole = EXAMPLES["LossValue float64 single _cross_entropy"][1]
    nothing = whole._replace(outputs=(output,), targets=(target,), case=case("transformer/single"))
    formula = losses.FORMULAS[kind]
    ask(formula, nothing, explain.usual_settings(formula, nothing))


def test_rows_that_the_heads_do_not_divide_do_not_fit() -> None:
    odd = start(case("transformer/single"), "layer.out_proj.weight", normal(3, 3), normal(3, 3))
    usual = explain.usual_settings(initial_parameters.FORMULA, odd)
    assert predicted(initial_parameters.FORMULA, odd, usual)
    assert predicted(initial_parameters.FORMULA, odd, usual | {"heads": "interleaved"}) == {}


def test_a_batch_of_fewer_samples_than_replicas_does_not_fit() -> None:
    small = case("simple_block/all_reduce", data={"batch": 1}, devices=3)
    observation = EXAMPLES["Samples int64 all_reduce _predict"][1]._replace(case=small)
    ask(samples.FORMULA, observation, {})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_batch_norm_without_samples_does_not_fail() -> None:
    formula, call = EXAMPLES["batch_norm in replicas"]
    empty = (call.inputs[0][:0],)
    ask(formula, call._replace(calls=(empty,), replicas=(empty,) * len(call.replicas)), {})
