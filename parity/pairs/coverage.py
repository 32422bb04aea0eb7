"""Which branches of two models a run has reached: what was not reached was not compared.

A branch is one side of a kink (a clamp's lower and upper end), of a mask (true and false), padding of an embedding,
dropout, or a mode. Each backend shows an `Observer` the values at such functions while its model is called; `covered`
puts together what both have seen.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from parity.core.arrays import Array
from parity.core.names import MODEL
from parity.pairs.activations.counterparts import drops
from parity.results import Branch, Coverage
from parity.trace.mapping import Matching
from parity.trace.survey import Survey

INPUTS, TRAINING = "inputs", "training"
Key = tuple[str, str]  # branch and module


class Seen(msgspec.Struct, frozen=True):
    """A branch of one side, in its own names, and whether a call reached it."""

    branch: str
    where: str
    reached: bool
    seen: str = ""


class Draw(NamedTuple):
    """A dropout mask that was drawn: the rate, and the number of elements."""

    rate: float
    size: int


class Observer:
    """Collects the branches of one call of a model. `where`: a module's path, "" for the whole model.

    `draws`: the dropout masks, in the order in which they were drawn.
    """

    def __init__(self) -> None:
        self.draws: list[Draw] = []
        self._reached: dict[Key, bool] = {}
        self._seen: dict[Key, str] = {}

    def kinks(self, function: str, where: str, x: Array, lower: float | None, upper: float | None = None) -> None:
        """Note on which sides of a function's kinks its argument x lies. None: there is no kink at that end."""
        inside = np.ones(x.shape, bool)
        for end, limit, beyond in (("lower", lower, np.less), ("upper", upper, np.greater)):
            if limit is not None:
                outside = beyond(x, limit)
                inside &= ~outside
                self._note(f"{function}.{end}", where, bool(outside.any()))
        self._note(f"{function}.inside", where, bool(inside.any()))

    def mask(self, where: str, mask: Array) -> None:
        """Note whether a mask is true and false anywhere."""
        self._note("mask.true", where, bool((mask != 0).any()))
        self._note("mask.false", where, bool((mask == 0).any()))

    def ids(self, where: str, ids: Array, rows: int, padding: int | None) -> None:
        """Note how many of an embedding's rows are looked up, and whether its padding id is among them."""
        drawn = np.unique(ids)
        self._note("embedding.ids", where, bool(drawn.size), f"{drawn.size} of {rows} drawn")
        if padding is not None:
            self._note("embedding.padding", where, padding in drawn)

    def branches(self) -> list[Seen]:
        """All that was noted since the last time, and forget it."""
        found = [Seen(*key, reached, self._seen.get(key, "")) for key, reached in self._reached.items()]
        self._reached, self._seen = {}, {}
        return found

    def _note(self, branch: str, where: str, reached: bool, seen: str = "") -> None:
        key = branch, where or MODEL
        self._reached[key] = self._reached.get(key, False) or reached
        if seen:
            self._seen.setdefault(key, seen)


def covered(branches: Iterable[tuple[str, Iterable[Seen]]]) -> Coverage:
    """Which branches were reached, and by which inputs first. `branches`: by the name of what was run, in order."""
    found: dict[Key, Branch] = {}
    for by, seen in branches:
        for one in seen:
            branch = found.setdefault((one.branch, one.where), Branch(branch=one.branch, where=one.where))
            branch.seen = branch.seen or one.seen
            if one.reached and not branch.reached:
                branch.reached, branch.by = True, by
    reached = sum(branch.reached for branch in found.values())
    return Coverage(reached=reached, of=len(found), branches=list(found.values()))


def in_torch_names(seen: Iterable[Seen], matching: Matching | None) -> Iterator[Seen]:
    """Keras's branches under the paths of torch's modules, where the layers correspond."""
    names = {match.keras: match.torch for match in matching.matches} if matching else {}
    for one in seen:
        plain = one.where == MODEL or one.where.startswith("inputs.")
        where = one.where if plain else names.get(one.where, f"keras: {one.where}")
        yield msgspec.structs.replace(one, where=where)


def by_mode(survey: Survey, training: bool) -> Iterator[Seen]:
    """The branches that a mode alone decides: dropout, and where batch norms take their statistics from."""
    yield Seen("mode.training", MODEL, training)
    yield Seen("mode.inference", MODEL, not training)
    for module in survey.modules:
        if drops(module):
            yield Seen("dropout.active", module.path, training)
        elif module.kind == "batch_norm":
            yield Seen("batch_norm.batch_statistics", module.path, training)
            yield Seen("batch_norm.running_statistics", module.path, not training)


def updates(survey: Survey, trained: bool) -> Iterator[Seen]:
    """The updates of running statistics, which are compared where the pair trains."""
    for module in survey.modules:
        if module.kind == "batch_norm":
            yield Seen("batch_norm.update", module.path, trained)
