"""What a composite module computes between its submodules: which tensors it adds, and what it makes of the sum.

If the submodules of a composite agree and one of them still receives a different input, the composite itself differs:
a shortcut is missing, a norm comes first, a positional encoding is added, another activation function is applied. The
terms of the differing tensor are searched for among the tensors that were recorded before it.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from parity.config import schema
from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import Formula, Settings, Trait, choices
from parity.diagnose.layers.activations import FUNCTIONS
from parity.diagnose.observation import Seen

MOST_TERMS: Final = 2  # tensors in a sum
PROBES: Final = 64  # elements on which sums are tried
NEAR: Final = 2.0**-40  # relative error up to which float64 values count as equal to a sum of two tensors


class Junction(NamedTuple):
    """A tensor between modules.

    Attributes:
        name: its key.
        earlier: the tensors of its shape that were recorded before it, by key.
        seen: the tensor itself, as `input`.
    """

    name: str
    earlier: Mapping[str, Array]
    case: schema.Case
    seen: Mapping[str, Seen]


def _predict(junction: Junction, function: str, added: str, terms: tuple[str, ...], scale: float) -> dict[str, Array]:
    if not terms or any(term not in junction.earlier for term in terms):
        return {}
    total = FUNCTIONS[function](_sum(junction.earlier, terms)) * scale
    if added == "position":  # a positional encoding is the same in every sample
        axis = junction.case.model.batch_axis
        if total.shape[axis] < 2:  # with a single sample, any difference is the same in every sample
            return {}
        position = (_value(junction) - total).take([0], axis)
        if np.abs(position).max(initial=0.0) <= NEAR * np.abs(total).max(initial=0.0):
            return {}
        total = total + position
    return {"input": total}


def _terms(junction: Junction, settings: Settings) -> Iterator[tuple[str, ...]]:
    """Yield the sets of earlier tensors whose sum gives the tensor, the smallest sets and latest tensors first.

    Sums are tried on a sample of the elements, since there are many pairs.
    """
    names = list(junction.earlier)[::-1]
    value = _value(junction)
    if settings["added"] == "position" or not value.size:
        yield from ((name,) for name in names)
        return
    positions = np.random.default_rng(0).integers(0, value.size, min(PROBES, value.size))
    target = value.reshape(-1)[positions]
    probes = {name: junction.earlier[name].reshape(-1)[positions] for name in names}
    function: Callable[[Array], Array] = FUNCTIONS[settings["function"]]
    close = NEAR * float(np.abs(target).max(initial=0.0))
    for count in range(1, MOST_TERMS + 1):
        for terms in itertools.combinations(names, count):
            total = function(_sum(probes, terms))
            factors = (1.0, solve.scale(total, target) or 1.0)
            if any(np.abs(total * factor - target).max(initial=0.0) <= close for factor in factors):
                yield tuple(reversed(terms))


def _norm_order(reference: tuple[str, ...], candidate: tuple[str, ...]) -> str:
    """Return the cause for a side that takes a norm's output where the other takes its input, or an empty string."""
    norms = [any("norm" in term.rpartition(".")[2] for term in terms) for terms in (reference, candidate)]
    return "transformer.norm_order" if norms[0] != norms[1] else ""


def _scales(junction: Junction, settings: Settings) -> Iterator[float]:
    """Yield the factor that the sum is multiplied by."""
    yield 1.0
    if settings["terms"]:
        unscaled = _predict(junction, settings["function"], "nothing", settings["terms"], 1.0).get("input")
        if unscaled is not None and (scale := solve.scale(unscaled, _value(junction))) is not None:
            yield scale


def _sum(tensors: Mapping[str, Array], terms: tuple[str, ...]) -> Array:
    return np.asarray(np.sum([tensors[term] for term in terms], axis=0))


def _value(junction: Junction) -> Array:
    return junction.seen["input"].value


FORMULA = Formula(
    _predict,
    (
        Trait("function", "activation.kind", choices(*FUNCTIONS)),
        Trait("added", "transformer.position", choices("nothing", "position")),
        Trait("terms", "module.wiring", _terms, _norm_order),
        Trait("scale", "module.scale", _scales),
    ),
)
