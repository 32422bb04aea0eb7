"""What a composite module computes between its submodules: which tensors it adds or multiplies, and what follows.

If the submodules of a composite agree and one of them still receives a different input, the composite itself differs:
a shortcut is missing, a norm comes first, a positional encoding is added, another activation function is applied. The
terms of the differing tensor are searched for among the tensors that were recorded before it.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from parity.config import schema
from parity.core.arrays import Array
from parity.core.precision import dtype
from parity.diagnose import solve
from parity.diagnose.formula import UNSET, Formula, NotApplicable, Seen, Settings, Trait, choices, require
from parity.diagnose.layers import activations
from parity.diagnose.topic import Sides, repeated

PROBES: Final = 64  # elements on which sums are tried
SETS: Final = 1 << 12  # sums that are tried at a time
LATEST: Final = 256  # the tensors recorded last, of which a sum of two has at least one
OPERATIONS: Final = {"sum": np.add, "difference": np.subtract, "product": np.multiply, "quotient": np.divide}
ORDERED: Final = ("difference", "quotient")  # whose terms cannot be exchanged
FUNCTIONS: Final = activations.FUNCTIONS | activations.BOUNDED
NEAR: Final = 2.0**-40  # relative error up to which float64 values count as equal to a sum of two tensors


@dataclass(frozen=True, eq=False)
class Junction:
    """A tensor between modules."""

    earlier: Mapping[str, Array]  # the tensors that were recorded before it and that it may be made of, by key
    case: schema.Case
    seen: Mapping[str, Seen]  # the tensor itself, as `input`
    # The keys that stand for the same tensor as another one in the reference, with the first such key. As the reference
    # does not tell which of them it takes, the candidate may take any.
    names: Mapping[str, str] = field(default_factory=dict)
    # Smaller tensors that were recorded before it, stretched to its shape, by key: several where they fit its axes in
    # several ways. A sum has at most one of them.
    broadcast: Mapping[str, list[Array]] = field(default_factory=dict)

    @property
    def value(self) -> Array:
        """Return the tensor itself."""
        return self.seen["input"].value

    def tensors(self, term: str) -> list[Array]:
        """Return the tensors that a term of the sum stands for, without repeats: several if it has several names."""
        own = [array for name, array in self.earlier.items() if self.names.get(name, name) == term]
        own += self.broadcast.get(term, [])
        return [array for number, array in enumerate(own) if not any(np.array_equal(array, o) for o in own[:number])]

    @functools.cached_property
    def terms(self) -> list[str]:
        """Return the names of all terms that a sum may have, in the order of their recording, broadcast ones last."""
        return list(dict.fromkeys([*(self.names.get(name, name) for name in self.earlier), *self.broadcast]))

    @functools.cached_property
    def probes(self) -> tuple[NDArray[np.intp], Array, Array]:
        """Return the elements on which sums are tried: of all tensors, a row each, the latest first, and of the whole.

        Before them stand the numbers of the rows' terms.
        """
        size = self.value.size
        probed = np.random.default_rng(0).integers(0, size, min(PROBES, size))
        tensors = [(number, array) for number, term in enumerate(self.terms) for array in self.tensors(term)][::-1]
        rows = np.array([array.flat[probed] for _, array in tensors]).reshape(len(tensors), len(probed))
        return np.array([number for number, _ in tensors], np.intp), rows, self.value.flat[probed]


def observe(
    sides: Sides, key: str, step: int, replica: int, chosen: Callable[[Junction], Junction]
) -> tuple[Junction | None, Junction | None]:
    """Return a tensor between modules on both sides, with those of its type before it that are `chosen` of all."""
    both: list[Junction | None] = []
    for side in sides.both:
        value = side.value(key, step, replica)
        before = itertools.takewhile(lambda item: item[0] != key, side.tensors(step, replica).items())
        earlier = {name: array for name, array in before if value and array.dtype == value.value.dtype}
        both.append(chosen(Junction(earlier, side.case, {"input": value})) if value else None)
    reference, candidate = both
    names = repeated(reference.earlier) if reference else {}
    return reference and replace(reference, names=names), candidate and replace(candidate, names=names)


def of_its_shape(junction: Junction) -> Junction:
    """Return a tensor with those of its shape that were recorded before it, and those that can be stretched to it."""
    shape = junction.value.shape
    whole = {name: array for name, array in junction.earlier.items() if array.shape == shape}
    smaller = ((name, array) for name, array in junction.earlier.items() if name not in whole)
    stretched = {name: list(_stretched(array, shape)) for name, array in smaller}
    return replace(junction, earlier=whole, broadcast={name: views for name, views in stretched.items() if views})


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
    require(shapes <= {junction.value.shape}, "earlier tensors of the same shape")
    require(bool(junction.value.any()), "something else than zeros, which any tensor of zeros explains")


def _predict(
    junction: Junction, function: str, operation: str, added: str, terms: tuple[str, ...], scale: float, rounded: str
) -> dict[str, Array]:
    require(set(terms) <= set(junction.terms), "terms that were recorded before")
    if added == "position":  # another one than that which is added to both
        axis = junction.case.model.batch_axis
        for tensor in (tensor for term in terms for tensor in junction.tensors(term)):
            is_alike = tensor.ndim > axis and bool((tensor == tensor.take([0], axis)).all())
            require(not is_alike, "terms that depend on the sample")
    choices_of_tensors = itertools.product(*map(junction.tensors, terms))
    totals = [FUNCTIONS[function](_together(operation, tensors)) * scale for tensors in choices_of_tensors]
    if added == "position":
        totals = [_with_position(junction, total) for total in totals]
    totals = [_rounded(total, rounded) for total in totals]
    value = junction.value
    return {"input": min(totals, key=lambda total: np.abs(total - value).max(initial=0.0))}


def _with_position(junction: Junction, total: Array) -> Array:
    """Return a sum with a positional encoding added, which is the same in every sample."""
    axis = junction.case.model.batch_axis
    # With a single sample, any difference is the same in every sample.
    require(total.ndim > axis and total.shape[axis] > 1, "several samples")
    require(bool((junction.value % 1).any()), "numbers that are no ids")
    position = (junction.value - total).take([0], axis)
    if np.abs(position).max(initial=0.0) <= NEAR * np.abs(total).max(initial=0.0):
        raise NotApplicable("nothing is added")
    return np.asarray(total + position)


def _terms(junction: Junction, settings: Settings) -> Iterator[tuple[str, ...]]:
    """Yield the sets of earlier tensors that give the tensor, smallest and latest first, as tried on a sample."""
    if settings["added"] == "position" or not junction.value.size:
        yield from ((name,) for name in junction.terms[::-1])
        return
    numbers, values, target = junction.probes
    whole = len(junction.terms) - len(junction.broadcast)
    for rows in _rows_of_sums(numbers, whole, settings["operation"] in ORDERED):
        fitting = _fit([values[each] for each in rows], target, settings)
        sums = np.stack([numbers[each[fitting]] for each in rows], axis=1)
        for terms in dict.fromkeys(map(tuple, sums.tolist())):
            yield tuple(junction.terms[number] for number in terms)


def _rows_of_sums(terms: NDArray[np.intp], whole: int, are_ordered: bool) -> Iterator[tuple[NDArray[np.intp], ...]]:
    """Yield the rows of the terms of sums, the smallest and latest sums first, some at a time: an array for each term.

    At least one term of a sum has the full shape (the first `whole` ones), and one is among the latest. Unless they are
    ordered, terms stand in the order in which they were recorded, those that are broadcast behind the others, as
    programs write them.
    """
    yield (np.flatnonzero(terms < whole),)
    later, earlier = terms[:, None], terms[None]
    is_sum = (later != earlier if are_ordered else later > earlier) & (np.minimum(later, earlier) < whole)
    is_sum[LATEST:, LATEST:] = False
    first, second = np.nonzero(is_sum)
    for begin in range(0, len(first), SETS):
        some = slice(begin, begin + SETS)
        yield (first[some], second[some]) if are_ordered else (second[some], first[some])


def _fit(probes: list[Array], target: Array, settings: Settings) -> NDArray[np.bool_]:
    """Return which of some sums give the target, as they are or times a factor; `probes`: of each of their terms."""
    with np.errstate(all="ignore"):  # a quotient of anything
        totals = FUNCTIONS[settings["function"]](_together(settings["operation"], probes))
        factors = (totals @ target) / (totals * totals).sum(axis=1)
        factors[(np.count_nonzero(totals, axis=1) < solve.ENOUGH) | (factors == 0)] = 1.0
        scaled = (_rounded(each, settings["rounded"]) for each in (totals, totals * factors[:, None]))
        apart = [np.abs(each - target).max(axis=1) for each in scaled]
    fits: NDArray[np.bool_] = np.fmin(*apart) <= NEAR * float(np.abs(target).max())
    return fits


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
    yield from solve.scale(unscaled, junction.value)


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
