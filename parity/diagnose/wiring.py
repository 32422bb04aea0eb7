"""What a composite module computes between its submodules: which tensors it adds, and what it makes of the sum.

If the submodules of a composite agree and one of them still receives a different input, the composite itself differs:
a shortcut is missing, a norm comes first, a positional encoding is added, another activation function is applied. The
terms of the differing tensor are searched for among the tensors that were recorded before it.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from parity.config import schema
from parity.core.arrays import Array
from parity.diagnose import solve
from parity.diagnose.formula import UNSET, Formula, NotApplicable, Settings, Trait, choices, require
from parity.diagnose.layers import activations
from parity.diagnose.observation import Seen
from parity.diagnose.sides import Side, Sides

MOST_TERMS: Final = 2  # tensors in a sum
PROBES: Final = 64  # elements on which sums are tried
FUNCTIONS: Final = activations.FUNCTIONS | activations.BOUNDED
NEAR: Final = 2.0**-40  # relative error up to which float64 values count as equal to a sum of two tensors


class Junction(NamedTuple):
    """A tensor between modules.

    Attributes:
        name: its key.
        earlier: the tensors of its shape that were recorded before it, by key.
        seen: the tensor itself, as `input`.
        names: the keys that stand for the same tensor as another one in the reference, with the first such key. As the
            reference does not tell which of them it takes, the candidate may take any.
    """

    name: str
    earlier: Mapping[str, Array]
    case: schema.Case
    seen: Mapping[str, Seen]
    names: Mapping[str, str] = {}

    def tensors(self, term: str) -> list[Array]:
        """Return the tensors that a term of the sum stands for, without repeats: several if it has several names."""
        own = [array for name, array in self.earlier.items() if self.names.get(name, name) == term]
        return [array for number, array in enumerate(own) if not any(np.array_equal(array, o) for o in own[:number])]

    @property
    def terms(self) -> list[str]:
        """Return the names of all terms that a sum may have, in the order in which they were recorded."""
        return list(dict.fromkeys(self.names.get(name, name) for name in self.earlier))


def observe(sides: Sides, key: str, step: int, replica: int) -> tuple[Junction | None, Junction | None]:
    """Return a tensor between modules on both sides, each with those of its shape that were recorded before it."""
    reference, candidate = (_recorded(side, key, step, replica) for side in sides.both)
    names = _names(reference.earlier) if reference else {}
    return reference and reference._replace(names=names), candidate and candidate._replace(names=names)


def _names(earlier: Mapping[str, Array]) -> dict[str, str]:
    """Return, for each tensor that equals an earlier one, the name of the first such tensor."""
    first: dict[bytes, list[str]] = {}
    names: dict[str, str] = {}
    for name, array in earlier.items():
        same = first.setdefault(array.reshape(-1)[:PROBES].tobytes(), [])
        known = next((other for other in same if np.array_equal(earlier[other], array)), None)
        if known is None:
            same.append(name)
        else:
            names[name] = known
    return names


def _recorded(side: Side, key: str, step: int, replica: int) -> Junction | None:
    value, earlier = side.value(key, step, replica), {}
    if value is None:
        return None
    for name, array in side.tensors(step, replica).items():
        if name == key:
            break
        if array.shape == value.value.shape and array.dtype == value.value.dtype:
            earlier[name] = array
    return Junction(key, earlier, side.case, {"input": value})


def _check(junction: Junction) -> None:
    shapes = {array.shape for array in junction.earlier.values()}
    require(shapes <= {_value(junction).shape}, "earlier tensors of the same shape")
    require(bool(_value(junction).any()), "something else than zeros, which any tensor of zeros explains")


def _predict(junction: Junction, function: str, added: str, terms: tuple[str, ...], scale: float) -> dict[str, Array]:
    require(set(terms) <= set(junction.terms), "terms that were recorded before")
    if added == "position":  # another one than that which is added to both
        axis = junction.case.model.batch_axis
        summands = (tensor for term in terms for tensor in junction.tensors(term))
        require(not any(_is_position(tensor, axis) for tensor in summands), "terms that depend on the sample")
    choices_of_tensors = itertools.product(*map(junction.tensors, terms))
    totals = [FUNCTIONS[function](_sum(tensors)) * scale for tensors in choices_of_tensors]
    if added == "position":
        totals = [_with_position(junction, total) for total in totals]
    value = _value(junction)
    return {"input": min(totals, key=lambda total: np.abs(total - value).max(initial=0.0))}


def _with_position(junction: Junction, total: Array) -> Array:
    """Return a sum with a positional encoding added, which is the same in every sample."""
    axis = junction.case.model.batch_axis
    # With a single sample, any difference is the same in every sample.
    require(total.ndim > axis and total.shape[axis] > 1, "several samples")
    position = (_value(junction) - total).take([0], axis)
    if np.abs(position).max(initial=0.0) <= NEAR * np.abs(total).max(initial=0.0):
        raise NotApplicable("nothing is added")
    return np.asarray(total + position)


def _is_position(tensor: Array, axis: int) -> bool:
    """Return whether a tensor is the same in every sample."""
    return tensor.ndim > axis and bool((tensor == tensor.take([0], axis)).all())


def _terms(junction: Junction, settings: Settings) -> Iterator[tuple[str, ...]]:
    """Yield the sets of earlier tensors whose sum gives the tensor, the smallest sets and latest tensors first.

    Sums are tried on a sample of the elements, since there are many pairs.
    """
    names = junction.terms[::-1]
    value = _value(junction)
    if settings["added"] == "position" or not value.size:
        yield from ((name,) for name in names)
        return
    positions = np.random.default_rng(0).integers(0, value.size, min(PROBES, value.size))
    target = value.reshape(-1)[positions]
    probes = {name: [array.reshape(-1)[positions] for array in junction.tensors(name)] for name in names}
    function: Callable[[Array], Array] = FUNCTIONS[settings["function"]]
    close = NEAR * float(np.abs(target).max(initial=0.0))
    for count in range(1, MOST_TERMS + 1):
        for terms in itertools.combinations(names, count):
            totals = [function(_sum(tensors)) for tensors in itertools.product(*(probes[term] for term in terms))]
            scaled = [total * factor for total in totals for factor in (1.0, solve.scale(total, target) or 1.0)]
            if any(np.abs(total - target).max(initial=0.0) <= close for total in scaled):
                yield tuple(reversed(terms))


def _norm_order(reference: tuple[str, ...], candidate: tuple[str, ...]) -> str:
    """Return the cause for a side that takes a norm's output where the other takes its input, or an empty string.

    A sum of fewer terms is no such difference, even if a term that it lacks is a norm's.
    """
    norms = [any(map(_is_of_norm, terms)) for terms in (reference, candidate)]
    return "transformer.norm_order" if norms[0] != norms[1] and len(reference) == len(candidate) else ""


def _is_of_norm(term: str) -> bool:
    """Return whether a term is what a norm returned, as its path tells. What goes into a norm is another module's."""
    return not term.startswith("input/") and "norm" in term.rpartition(".")[2]


def _scales(junction: Junction, settings: Settings) -> Iterator[float]:
    """Yield the factor that the sum is multiplied by."""
    yield 1.0
    require(settings["terms"] is not UNSET, "terms")
    unscaled = _predict(junction, settings["function"], "nothing", settings["terms"], 1.0)["input"]
    if (scale := solve.scale(unscaled, _value(junction))) is not None:
        yield scale


def _sum(tensors: Iterable[Array]) -> Array:
    return np.asarray(np.sum(list(tensors), axis=0))


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
    _check,
    is_function=True,
)
