"""Tell which branches of two models a run has reached: what was not reached was not compared.

A branch is one side of a kink (the lower and upper end of a clamp), of a mask (true and false), the padding of an
embedding, a dropout, or a mode. While its model is called, each backend shows an `Observer` the values at such
functions. `covered` combines what both backends have seen, and `unshared_masks` tells whether both sides draw alike in
training mode where their masks cannot be shared.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from parity.core.arrays import Array
from parity.pairs.activations.modules import drops
from parity.results import Branch, Coverage
from parity.runtime.survey import Survey
from parity.trace.keys import MODEL
from parity.trace.mapping import Matching

INPUTS = "inputs"
Key = tuple[str, str]  # branch and module
DROPOUT = "dropout"


class Seen(msgspec.Struct, frozen=True):
    """A branch of one side's model, named in that side's own terms, and whether a call reached it."""

    branch: str
    where: str
    reached: bool
    seen: str = ""


class Draw(NamedTuple):
    """A dropout mask that was drawn: the rate, and the number of elements."""

    rate: float
    size: int


class Observer:
    """Collector of the branches that one call of a model reaches.

    `where` is the path of a module throughout, "" for the whole model. `draws` are the dropout masks, in the order in
    which they were drawn, and `states` those of the model's own generator from which it would have drawn them.
    """

    def __init__(self) -> None:
        self.draws: list[Draw] = []
        self.states: set[Hashable] = set()
        self._noted: dict[Key, Seen] = {}

    def kinks(self, function: str, where: str, x: Array, lower: float | None, upper: float | None = None) -> None:
        """Note on which sides of a function's kinks its argument `x` lies; None where it has no kink at that end."""
        inside = np.ones(x.shape, bool)
        for end, limit, beyond in (("lower", lower, np.less), ("upper", upper, np.greater)):
            if limit is not None:
                outside = beyond(x, limit)
                inside &= ~outside
                self._note(f"{function}.{end}", where, bool(outside.any()))
        self._note(f"{function}.inside", where, bool(inside.any()))

    def mask(self, where: str, mask: Array) -> None:
        """Note whether a mask is true anywhere, and false anywhere."""
        self._note("mask.true", where, bool((mask != 0).any()))
        self._note("mask.false", where, bool((mask == 0).any()))

    def ids(self, where: str, ids: Array, rows: int, padding: int | None) -> None:
        """Note how many of an embedding's rows are looked up, and whether its padding id is among them."""
        drawn = np.unique(ids)
        self._note("embedding.ids", where, bool(drawn.size), f"{drawn.size} of {rows} drawn")
        if padding is not None:
            self._note("embedding.padding", where, padding in drawn)

    def branches(self) -> list[Seen]:
        """Return all that was noted since the last call of this method, and forget it."""
        branches, self._noted = list(self._noted.values()), {}
        return branches

    def _note(self, branch: str, where: str, reached: bool, seen: str = "") -> None:
        key = branch, where or MODEL
        before = self._noted.get(key, Seen(*key, reached, seen))
        self._noted[key] = Seen(*key, before.reached or reached, before.seen or seen)


def covered(branches: Iterable[tuple[str, Iterable[Seen]]]) -> Coverage:
    """Combine what was seen, paired with the names of the inputs, into a coverage: which branches, reached by which."""
    branches_by_key: dict[Key, Branch] = {}
    for by, seen in branches:
        for sighting in seen:
            key = sighting.branch, sighting.where
            branch = branches_by_key.setdefault(key, Branch(branch=sighting.branch, where=sighting.where))
            branch.seen = branch.seen or sighting.seen
            if sighting.reached and not branch.reached:
                branch.reached, branch.by = True, by
    reached = sum(branch.reached for branch in branches_by_key.values())
    return Coverage(reached=reached, of=len(branches_by_key), branches=list(branches_by_key.values()))


def in_torch_names(seen: Iterable[Seen], matching: Matching | None) -> Iterator[Seen]:
    """Yield Keras's branches under the paths of the torch modules that their layers correspond to."""
    names = {match.keras: match.torch for match in matching.matches} if matching else {}
    for branch in seen:
        is_shared = branch.where == MODEL or branch.where.startswith("inputs.")
        where = branch.where if is_shared else names.get(branch.where, f"keras: {branch.where}")
        yield replace(branch, where=where)


def by_mode(survey: Survey, training: bool) -> Iterator[Seen]:
    """Yield the branches that the mode alone decides: dropout, and where batch norms take their statistics from."""
    yield Seen("mode.training", MODEL, training)
    yield Seen("mode.inference", MODEL, not training)
    for module in survey.modules:
        if drops(module):
            yield Seen("dropout.active", module.path, training)
        elif module.kind == "batch_norm":
            yield Seen("batch_norm.batch_statistics", module.path, training)
            yield Seen("batch_norm.running_statistics", module.path, not training)


def updates(survey: Survey, trained: bool) -> Iterator[Seen]:
    """Yield the updates of running statistics, which are compared only if the pair trains."""
    for module in survey.modules:
        if module.kind == "batch_norm":
            yield Seen("batch_norm.update", module.path, trained)


class Unshared(NamedTuple):
    """Why training mode is not compared. `alike` says that both sides draw the same, as far as is known."""

    reason: str
    alike: bool


def unshared_masks(excluded: dict[str, str], torch: Survey, drawn: Sequence[Draw]) -> Unshared | None:
    """Explain why masks cannot be shared, if a side draws random numbers that shared masks cannot stand for; else None.

    `excluded` says by side what it draws. `torch` is torch's survey, which knows the rates of such modules. `drawn`
    are the shared masks that Keras drew. A side that is not in `excluded` draws nothing but plain dropout.
    """
    if not excluded:
        return None
    reason = "; ".join(f"{side}: {why}" for side, why in excluded.items())
    if len(excluded) == 2:
        return Unshared(reason, alike=True)
    if "keras" in excluded:
        return Unshared(f"{reason}; torch draws nothing of that kind", alike=False)
    # What is known of the rates in a model: those of dropouts, and those inside recurrent layers.
    known = [module.facts.get("rate") for module in torch.modules if drops(module)]
    known += [module.facts.get("dropout") for module in torch.modules]
    rates, shared = {round(rate, 6) for rate in known if rate}, {round(draw.rate, 6) for draw in drawn}
    kinds = [module.kind.lower() for module in torch.modules if drops(module)]
    # Other kinds than plain and channel dropout (dropout2d), as AlphaDropout.
    others = [kind for kind in kinds if kind.rstrip("123d").endswith(DROPOUT) and not kind.startswith(DROPOUT)]
    alike = bool(shared) and rates <= shared and not others
    return Unshared(reason if alike else f"{reason}; keras drops at the rates {rates_in_words(drawn)}", alike)


def rates_in_words(draws: Iterable[Draw]) -> str:
    """Return the rates of some masks, in words."""
    return ", ".join(f"{draw.rate:g}" for draw in draws) or "nothing"
