"""What a composite module computes between its submodules: which tensors it adds or multiplies, and what follows.

If the submodules of a composite agree and one of them still receives a different input, the composite itself differs:
a shortcut is missing, a norm comes first, a positional encoding is added, another activation function is applied. The
terms of the differing tensor are searched for among the tensors that were recorded before it.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from parity.config import schema
from parity.core.arrays import Array
from parity.core.precision import dtype
from parity.diagnose import solve
from parity.diagnose.formula import UNSET, Formula, NotApplicable, Seen, Settings, Trait, choices, require
from parity.diagnose.layers import activations
from parity.diagnose.topic import Side, Sides

MOST_TERMS: Final = 2  # tensors in a sum
PROBES: Final = 64  # elements on which sums are tried
SETS: Final = 1 << 12  # sums that are tried at a time
OPERATIONS: Final = {"sum": np.add, "difference": np.subtract, "product": np.multiply, "quotient": np.divide}
ORDERED: Final = ("difference", "quotient")  # whose terms cannot be exchanged
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
        broadcast: smaller tensors that were recorded before it, stretched to its shape, by key: several where they fit
            its axes in several ways. A sum has at most one of them.
    """

    name: str
    earlier: Mapping[str, Array]
    case: schema.Case
    seen: Mapping[str, Seen]
    names: Mapping[str, str] = {}
    broadcast: Mapping[str, list[Array]] = {}

    def tensors(self, term: str) -> list[Array]:
        """Return the tensors that a term of the sum stands for, without repeats: several if it has several names."""
        own = [array for name, array in self.earlier.items() if self.names.get(name, name) == term]
        own += self.broadcast.get(term, [])
        return [array for number, array in enumerate(own) if not any(np.array_equal(array, o) for o in own[:number])]

    @property
    def terms(self) -> list[str]:
        """Return the names of all terms that a sum may have, in the order of their recording, broadcast ones last."""
        return list(dict.fromkeys([*(self.names.get(name, name) for name in self.earlier), *self.broadcast]))


def observe(sides: Sides, key: str, step: int, replica: int) -> tuple[Junction | None, Junction | None]:
    """Return a tensor between modules on both sides, each with those of its shape that were recorded before it."""
    reference, candidate = (_recorded(side, key, step, replica) for side in sides.both)
    names = repeated(reference.earlier) if reference else {}
    return reference and reference._replace(names=names), candidate and candidate._replace(names=names)


def repeated(earlier: Mapping[str, Array]) -> dict[str, str]:
    """Return, for each tensor that equals an earlier one, the name of the first such tensor, by name."""
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
    value, earlier, broadcast = side.value(key, step, replica), {}, {}
    if value is None:
        return None
    for name, array in side.tensors(step, replica).items():
        if name == key:
            break
        if array.dtype != value.value.dtype:
            continue
        if array.shape == value.value.shape:
            earlier[name] = array
        elif stretched := list(_stretched(array, value.value.shape)):
            broadcast[name] = stretched
    return Junction(key, earlier, side.case, {"input": value}, broadcast=broadcast)


def _stretched(array: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """Yield a smaller tensor as views of a shape: its axes stand, in order, for axes of their lengths or of any."""
    if array.size < 2 or array.ndim > len(shape):
        return
    for axes in itertools.combinations(range(len(shape)), array.ndim):
        if all(size in (1, shape[axis]) for size, axis in zip(array.shape, axes, strict=True)):
            others = tuple(axis for axis in range(len(shape)) if axis not in axes)
            yield np.broadcast_to(np.expand_dims(array, others), shape)


def _check(junction: Junction) -> None:
    shapes = {array.shape for array in junction.earlier.values()}
    require(shapes <= {_value(junction).shape}, "earlier tensors of the same shape")
    require(bool(_value(junction).any()), "something else than zeros, which any tensor of zeros explains")


def _predict(
    junction: Junction, function: str, operation: str, added: str, terms: tuple[str, ...], scale: float, rounded: str
) -> dict[str, Array]:
    require(set(terms) <= set(junction.terms), "terms that were recorded before")
    if added == "position":  # another one than that which is added to both
        axis = junction.case.model.batch_axis
        summands = (tensor for term in terms for tensor in junction.tensors(term))
        require(not any(_is_position(tensor, axis) for tensor in summands), "terms that depend on the sample")
    choices_of_tensors = itertools.product(*map(junction.tensors, terms))
    totals = [FUNCTIONS[function](_together(operation, tensors)) * scale for tensors in choices_of_tensors]
    if added == "position":
        totals = [_with_position(junction, total) for total in totals]
    totals = [_rounded(total, rounded) for total in totals]
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
    """Yield the sets of earlier tensors which, added up or multiplied, give the tensor, the smallest and latest first.

    They are tried on a sample of the elements, many at a time, since there are many pairs.
    """
    names = junction.terms[::-1]
    value = _value(junction)
    if settings["added"] == "position" or not value.size:
        yield from ((name,) for name in names)
        return
    drawn = np.random.default_rng(0).integers(0, value.size, min(PROBES, value.size))
    target = value.flat[drawn]
    probes = {name: [array.flat[drawn] for array in junction.tensors(name)] for name in names}
    sets = _sets(junction, settings["operation"])
    while several := list(itertools.islice(sets, SETS)):
        for count in range(1, MOST_TERMS + 1):
            together = [terms for terms in several if len(terms) == count]
            yield from (together[number] for number in _fitting(together, probes, target, settings))


def _fitting(
    sets: list[tuple[str, ...]], probes: Mapping[str, list[Array]], target: Array, settings: Settings
) -> list[int]:
    """Return the numbers of the sets, of equally many terms, whose probes give the target, in order."""
    chosen = [(number, each) for number, terms in enumerate(sets) for each in itertools.product(*map(probes.__getitem__, terms))]
    if not chosen:
        return []
    numbers = np.array([number for number, _ in chosen])
    with np.errstate(all="ignore"):  # a quotient of anything
        tensors = (np.stack(each) for each in zip(*(each for _, each in chosen), strict=True))
        totals = FUNCTIONS[settings["function"]](_together(settings["operation"], tensors))
        factors = (totals @ target) / (totals * totals).sum(axis=1)
        factors[(np.count_nonzero(totals, axis=1) < solve.ENOUGH) | (factors == 0)] = 1.0
        apart = [
            np.abs(_rounded(scaled, settings["rounded"]) - target).max(axis=1)
            for scaled in (totals, totals * factors[:, None])
        ]
    fits = np.fmin(*apart) <= NEAR * float(np.abs(target).max())
    return list(np.unique(numbers[fits]))


def _sets(junction: Junction, operation: str) -> Iterator[tuple[str, ...]]:
    """Yield sets of terms, at least one of them of the full shape; in every order if the operation has one.

    The terms of a set stand in the order in which they were recorded, those that are broadcast behind the others, as
    programs write them.
    """
    names, whole = junction.terms, len(junction.terms) - len(junction.broadcast)
    arranged = itertools.permutations if operation in ORDERED else itertools.combinations
    for count in range(1, MOST_TERMS + 1):
        for places in arranged(range(len(names))[::-1], count):
            if min(places) < whole:
                yield tuple(names[place] for place in (places if operation in ORDERED else sorted(places)))


def _norm_order(reference: tuple[str, ...], candidate: tuple[str, ...]) -> str:
    """Return the cause for a side that takes a norm's output where the other takes its input, or an empty string.

    A sum of fewer terms is no such difference, even if a term that it lacks is a norm's. Nor is it one where the norm
    is in no block, as that of embeddings, and all other terms are in one.
    """
    norms = [list(filter(_is_of_norm, terms)) for terms in (reference, candidate)]
    others = {_parent(term) for term in (*reference, *candidate) if not _is_of_norm(term)}
    is_beside = any(_parent(norm) or "" in others for norm in (*norms[0], *norms[1]))
    is_other = bool(norms[0]) != bool(norms[1]) and len(reference) == len(candidate)
    return "transformer.norm_order" if is_other and is_beside else ""


def _is_of_norm(term: str) -> bool:
    """Return whether a term is what a norm returned, as its path tells. What goes into a norm is another module's."""
    return not term.startswith("input/") and "norm" in term.rpartition(".")[2]


def _parent(term: str) -> str:
    """Return the path of the module around the one that returned a term."""
    return term.partition("/")[2].rpartition(".")[0]


def _scales(junction: Junction, settings: Settings) -> Iterator[float]:
    """Yield the factor that the sum is multiplied by."""
    yield 1.0
    require(settings["terms"] is not UNSET, "terms")
    alone = {**settings, "added": "nothing", "scale": 1.0, "rounded": "nothing"}
    unscaled = _predict(junction, **alone)["input"]
    if (scale := solve.scale(unscaled, _value(junction))) is not None:
        yield scale


def _together(operation: str, tensors: Iterable[Array]) -> Array:
    return functools.reduce(OPERATIONS[operation], tensors)


def _rounded(total: Array, to: str) -> Array:
    return total if to == "nothing" else total.astype(dtype(to)).astype(total.dtype)


def _bound(reference: str, candidate: str) -> str:
    """Return the cause for functions that differ in an upper bound alone, or an empty string."""
    return "relu.cap" if {reference, candidate} == {"relu", "relu6"} else ""


def _precision(reference: str, candidate: str) -> str:
    """Return the cause for the precision that one side rounds to."""
    return f"precision.{candidate if reference == 'nothing' else reference}"


def _value(junction: Junction) -> Array:
    return junction.seen["input"].value


FORMULA = Formula(
    _predict,
    (
        Trait("function", "activation.kind", choices(*FUNCTIONS), _bound),
        Trait("operation", "module.operation", choices(*OPERATIONS)),
        Trait("added", "transformer.position", choices("nothing", "position")),
        Trait("rounded", "precision.float16", choices("nothing", "bfloat16", "float16"), _precision),
        Trait("terms", "module.wiring", _terms, _norm_order),
        Trait("scale", "module.scale", _scales),
    ),
    _check,
    is_function=True,
)
