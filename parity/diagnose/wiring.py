"""What a composite module does between its children: which tensors it adds up, and what it makes of them.

The children of a composite agree, and still one of them gets something else: a shortcut is missing, a
norm comes first, positions are added, another activation function stands between. What a tensor is made
of is found among the tensors that were recorded before it.
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

MOST_TERMS: Final = 2  # tensors that are added up
PROBES: Final = 64  # elements on which the sums are tried
NEAR: Final = 2.0**-40  # relative: as near as float64 comes to the sum of two tensors


class Junction(NamedTuple):
    """A tensor between modules. `earlier`: those of its shape that were recorded before it, by name."""

    name: str
    earlier: Mapping[str, Array]
    case: schema.Case
    seen: Mapping[str, Seen]


def _predict(junction: Junction, function: str, added: str, terms: tuple[str, ...], scale: float) -> dict[str, Array]:
    if not terms or any(term not in junction.earlier for term in terms):
        return {}
    total = FUNCTIONS[function](_sum(junction.earlier, terms)) * scale
    if added == "position":  # the same in every sample
        axis = 1 if isinstance(junction.case.model, schema.Transformer) else 0
        if total.shape[axis] < 2:  # of a single sample anything is a position
            return {}
        position = (_value(junction) - total).take([0], axis)
        if np.abs(position).max(initial=0.0) <= NEAR * np.abs(total).max(initial=0.0):
            return {}
        total = total + position
    return {"input": total}


def _terms(junction: Junction, settings: Settings) -> Iterator[tuple[str, ...]]:
    """Sums that give the tensor, the shortest and latest first."""
    names = list(junction.earlier)[::-1]
    value = _value(junction)
    if settings["added"] == "position" or not value.size:
        yield from ((name,) for name in names)
        return
    places = np.random.default_rng(0).integers(0, value.size, min(PROBES, value.size))
    wanted = value.reshape(-1)[places]
    probes = {name: junction.earlier[name].reshape(-1)[places] for name in names}
    function: Callable[[Array], Array] = FUNCTIONS[settings["function"]]
    close = NEAR * float(np.abs(wanted).max(initial=0.0))
    for count in range(1, MOST_TERMS + 1):
        for terms in itertools.combinations(names, count):
            made = function(_sum(probes, terms))
            factors = (1.0, solve.scale(made, wanted) or 1.0)
            if any(np.abs(made * factor - wanted).max(initial=0.0) <= close for factor in factors):
                yield tuple(reversed(terms))


def _norm_order(reference: tuple[str, ...], candidate: tuple[str, ...]) -> str:
    """Whether one side takes what a norm gives where the other takes what is to be normalised later."""
    norms = [any("norm" in term.rpartition(".")[2] for term in terms) for terms in (reference, candidate)]
    return "transformer.norm_order" if norms[0] != norms[1] else ""


def _scales(junction: Junction, settings: Settings) -> Iterator[float]:
    yield 1.0
    if settings["terms"]:
        made = _predict(junction, settings["function"], "nothing", settings["terms"], 1.0).get("input")
        if made is not None and (scale := solve.scale(made, _value(junction))) is not None:
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
