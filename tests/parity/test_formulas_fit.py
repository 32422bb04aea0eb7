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

from parity.core.arrays import Array
from parity.diagnose import explain, wiring
from parity.diagnose.formula import UNSET, Formula, predicted, values
from parity.diagnose.layers import LAYERS
from parity.diagnose.layers.rounding import at_run_precision
from parity.diagnose.observation import Seen

MOST_VALUES = 4  # of each trait that are tried
SOME = 7  # one in so many of the odd low runs is examined; each takes a whole search
ODD: Mapping[str, Callable[[Array], Array]] = {
    "transposed": lambda array: array.T,
    "flat": np.ravel,
    "nothing": lambda array: array[:0] if array.ndim else np.zeros(0),
    "nothing along the last axis": lambda array: array[..., :0] if array.ndim else np.zeros(0),
    "the first half": lambda array: array[: len(array) // 2] if array.ndim else array,
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
    """Ask for predictions under a few settings of every trait; `usual` are those of the unaltered observation."""
    own = explain.usual_settings(formula, observation)
    for start in (usual,) if own == usual else (usual, own):
        predicted(formula, observation, dict(start))
        for trait in formula.traits:
            for value in itertools.islice(values(formula, trait, observation, dict(start)), MOST_VALUES):
                predicted(formula, observation, {**start, trait.name: value})


def examples() -> Iterator[tuple[str, Formula[Any], Any]]:
    """One observation for each formula."""
    for each in test_causes_layers.EVERY:
        yield each.reference.kind, LAYERS[each.reference.kind].formula, each.reference
    for kind, each in test_causes_training.ALL:
        formula = test_causes_training.formula(each.reference)
        yield f"{kind} {getattr(formula.predict, '__name__', '')}", formula, each.reference
    yield "wiring", wiring.FORMULA, test_wiring.junction(test_wiring.X)


EXAMPLES = {name: (formula, observation) for name, formula, observation in examples()}


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
