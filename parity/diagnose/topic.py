"""What a topic of the diagnosis reads and asks: the traces of both sides, and questions about tensors that differ.

A topic is a function `questions(sides)` in the file of its formula; diagnosis.py lists all of them in order. What it
needs of the traces it puts together itself, as its own observation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from parity.config.pair import Pair
from parity.config.schema import Case
from parity.core.arrays import Array
from parity.core.groups import grouped
from parity.diagnose.explain import Explained
from parity.diagnose.formula import Formula, Seen, seen
from parity.trace import keys
from parity.trace.manifest import Tensors, Trace
from parity.trace.summary import Summary
from parity.verdict.traces import Unequal

MOST_SEEN = 1 << 21  # elements of a tensor that is examined: the search for an explanation makes a dozen copies
OF_EACH = 2  # parameters to ask about for each number of axes (matrices and more, vectors, scalars)
LARGEST = 1 << 16  # elements; larger parameters are asked about only if there are too few others
COMPARED_FIRST = 64  # elements by which most arrays that differ are told apart


class File(NamedTuple):
    """What one file of a trace holds."""

    recorded: Tensors
    compared: Tensors  # what has a counterpart on the other side, summaries included
    whole: Tensors  # of that, the whole tensors


class Side:
    """One side's trace; each of its files is opened once.

    `is_comparable`: for a pair of models, whether a tensor's key has a counterpart on the other side. `same`: for a
    pair of models, the reference's aliases: by file, from the key of a module's input to the key of the output of
    another module that it is identical with. A tensor that was not recorded under the first key is read from the
    second.
    """

    def __init__(
        self,
        name: str,
        trace: Trace,
        is_comparable: Callable[[str], bool] = lambda key: True,
        same: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.name, self.trace, self.case = name, trace, trace.case
        self._is_comparable, self._same = is_comparable, same or {}
        self.modules, self.classes = trace.manifest.modules, trace.manifest.classes
        self.replicas = range(trace.replicas)
        self._opened: dict[tuple[int | None, int, str], File] = {}  # by step, replica and run

    def tensors(self, step: int | None, replica: int = 0, run: str = "high") -> Tensors:
        """Return a step's whole tensors on a replica, without summaries; None is the state before step 0."""
        return self.file(step, replica, run).whole

    def file(self, step: int | None, replica: int = 0, run: str = "high") -> File:
        """Return what a step recorded on a replica; None is the state before step 0."""
        file = step, replica, run
        if file not in self._opened:
            stem = keys.step_file(step)
            recorded = self.trace.open(run, stem, replica) if stem in self.trace.stems(run) else {}
            aliases = self._same.get(f"{run}/rank-{replica}/{stem}", {})
            compared = {key: array for key, array in recorded.items() if self._is_comparable(key)}
            aliased = {key: compared[target] for key, target in aliases.items() if target in compared}
            compared |= {key: array for key, array in aliased.items() if key not in compared}
            whole = {key: array for key, array in compared.items() if not isinstance(array, Summary)}
            self._opened[file] = File(recorded, compared, whole)
        return self._opened[file]

    def made_by_functions(self, step: int | None, replica: int = 0) -> set[str]:
        """Return the keys of those inputs of modules that are not what another module returned."""
        aliases = self._same.get(f"high/rank-{replica}/{keys.step_file(step)}", {})
        inputs = {key for key in self.file(step, replica).recorded if key.startswith(keys.key("input", ""))}
        return {key for key in inputs if not aliases.get(key, key).startswith(keys.key("activation", ""))}

    def lacks(self, unequal: Unequal) -> bool:
        """Return whether this side lacks a tensor; a gradient that does not arrive is recorded as zeros by a pair."""
        tensor = self.file(unequal.step, unequal.replica).compared.get(keys.key(unequal.kind, unequal.name))
        is_pair = isinstance(self.case.model, Pair)
        return tensor is None or (is_pair and unequal.kind == "gradient" and not np.any(tensor))

    def value(self, key: str, step: int | None, replica: int = 0) -> Seen | None:
        """Return a tensor as evidence; None if it was not recorded, or is too large for the search's many copies."""
        high = self.tensors(step, replica).get(key)
        if high is None or high.size > MOST_SEEN:
            return None
        return seen(high, self.tensors(step, replica, "low").get(key))


class Sides(NamedTuple):
    """Both sides of a comparison, and what differs between them."""

    reference: Side
    candidate: Side
    unequal: list[Unequal]  # the tensors that are not a match, in execution order
    noisier: dict[str, list[str]]  # by side, the keys of tensors whose noise is much larger than on the other side

    @property
    def both(self) -> tuple[Side, Side]:
        """Return the two sides, the reference first."""
        return self.reference, self.candidate

    @property
    def names(self) -> tuple[str, str]:
        """Return the names of the two sides, as reports have them."""
        return self.reference.name, self.candidate.name

    def of(self, *kinds: str) -> list[Unequal]:
        """Return the tensors of some kinds that differ, without the state before the first step."""
        return [tensor for tensor in self.unequal if tensor.kind in kinds and tensor.step is not None]


class Compared(NamedTuple):
    """A tensor of a side together with that of the reference."""

    name: str
    reference: Array  # the reference's tensor; for the reference itself, its own
    before: Array | None  # the reference's tensor of the step before
    case: Case
    seen: Mapping[str, Seen]  # this side's tensor, by its kind


def numbered(tensors: Tensors, kind: str, name: str) -> list[Array]:
    """Return the tensors of all calls of a name within a step, in order."""
    calls: list[Array] = []
    while (key := keys.key(kind, name, len(calls))) in tensors:
        calls.append(tensors[key])
    return calls


def repeated(arrays: Mapping[str, Array]) -> dict[str, str]:
    """Return, for each array that equals an earlier one, the name of the first such array, by name."""
    first: dict[bytes, list[str]] = {}
    names: dict[str, str] = {}
    for name, array in arrays.items():
        beginning = array.reshape(-1)[:COMPARED_FIRST] + 0  # of a negative zero, that makes a positive one
        alike = first.setdefault(beginning.tobytes(), [])
        known = next((candidate for candidate in alike if np.array_equal(arrays[candidate], array)), None)
        if known is None:
            alike.append(name)
        else:
            names[name] = known
    return names


def joined(arrays: list[Array]) -> Array:
    """Return all values of the arrays in one flat array, as float64 if the dtypes differ."""
    dtype = arrays[0].dtype if len({array.dtype for array in arrays}) == 1 else np.float64
    return np.concatenate([np.ravel(array).astype(dtype) for array in arrays] or [np.zeros(0)])


class Question(NamedTuple):
    """What a formula has to explain: one tensor or module that differs, as both sides recorded it."""

    kind: str  # the kind of the tensor that differs (keys.py lists the kinds)
    where: str  # the module or tensor at which a cause would be reported
    formula: Formula[Any]  # recomputes the observation under each setting
    # The observations of the reference, for which the formula is made, and of the candidate; None of a side that has
    # not recorded what the formula needs. Then the question is not asked.
    both: Sequence[Any]
    own_key: str = ""  # the key of what is explained, where it is not that of `where`
    # Whether functions between modules make the tensor, and made it alike in the first step: then it may differ only
    # because weights do by then.
    is_later: bool = False
    answer: Explained | None = None  # what explains the difference, where it is known without a search

    @property
    def tensor(self) -> str:
        """Return the key of what is explained, without the call number."""
        return self.own_key or keys.key(self.kind, self.where)


def compare_with_reference(sides: Sides, tensor: Unequal, formula: Formula[Compared]) -> Question:
    """Return the question in what a tensor differs from that of the reference."""
    key, step = keys.key(tensor.kind, tensor.name), tensor.step or 0
    reference = sides.reference.tensors(step, tensor.replica).get(key)
    before = sides.reference.tensors(step - 1, tensor.replica).get(key) if step else None
    both = [
        Compared(tensor.name, reference, before, side.case, {tensor.kind: value})
        for side in sides.both
        if reference is not None and (value := side.value(key, step, tensor.replica))
    ]
    return Question(tensor.kind, tensor.name, formula, both if len(both) == len(sides.both) else (None, None))


def most_informative(sides: Sides, candidates: list[Unequal]) -> list[Unequal]:
    """Return a few parameters' tensors, each once: some matrices, vectors and scalars, the largest quick ones first."""
    once = {tensor.name: tensor for tensor in reversed(candidates)}
    parameters = keys.of_kind(sides.reference.tensors(None), "parameter")
    arrays = {name: parameters.get(name.removesuffix(keys.LOCAL)) for name in once}
    known = {name: array for name, array in arrays.items() if array is not None}
    ordered = sorted(known, key=lambda name: (max(known[name].size, LARGEST), -known[name].size))
    by_axes = grouped(ordered, lambda name: min(known[name].ndim, 2))
    return [once[name] for count in (2, 1, 0) for name in by_axes.get(count, [])[:OF_EACH]]
