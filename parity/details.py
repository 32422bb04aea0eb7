"""The parts of a result that say why two sides differ, how much was compared, and what the HTML report draws of it.

They are fields of the structs in parity/results.py.
"""

from typing import Any, Literal

import msgspec

from parity.runtime.experiment import Change

Verdict = Literal["match", "subprecision", "inconclusive", "diverged", "error", "skipped"]
TRAINING, EVALUATION, BATCHES = "training", "evaluation", "other batch sizes"  # the modes of `Extent.not_run`


class Result(msgspec.Struct, kw_only=True):
    """Base class of all parts of a report."""


class Changed(Change, frozen=True, kw_only=True):
    """What an experiment has changed in the computation of a side, so that it does what the other side does."""

    side: str


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why two sides differ, or that it is not known: what each of them does at a place.

    Attributes:
        id: its name, as docs/causes.md lists them; "unknown" if there is none.
        where: the module or tensor, by the reference's name.
        torch, keras: what these sides do; of two traces of one backend, `reference` and `candidate`. A side that has
            None, as where a limit is off, is told beside the other's value.
        evidence: how it was found, in words.
        source: "file:line" of the port, where that is known.
        lines: the lines of the port at which the sides part, and those that make what goes in there.
        changes: what an experiment has changed.
        reason: why it is accepted, if it is.
    """

    id: str
    where: str
    torch: Any = msgspec.UNSET
    keras: Any = msgspec.UNSET
    reference: Any = msgspec.UNSET
    candidate: Any = msgspec.UNSET
    evidence: str = ""
    source: str = ""
    lines: list[str] = []
    changes: list[Changed] = []
    reason: str = ""

    @property
    def sides(self) -> dict[str, Any]:
        """Return what each side does, by its name."""
        values = {side: getattr(self, side) for side in ("torch", "keras", "reference", "candidate")}
        return {side: value for side, value in values.items() if value is not msgspec.UNSET}


class Share(Result):
    """A part of a whole, and as a percentage of it; null where there is nothing to compare."""

    compared: int = 0
    of: int = 0
    percent: float | None = None


class Extent(Result):
    """How much of a case was compared, and what was not.

    `parameters`: the numbers in the reference's parameters. `activations`: the tensors that its modules return in the
    first step. `alone`: by side, the tensors without a counterpart on the other side. `not_promoted`: by side, the
    modules that returned less than float64 in the high run. `not_run`: modes that did not run, with the reason.
    """

    parameters: Share
    activations: Share
    alone: dict[str, list[str]] = {}
    not_promoted: dict[str, list[str]] = {}
    not_run: dict[str, str] = {}


class Compared(Result):
    """One compared tensor, with the largest differences of its elements.

    `difference`: between the float64 runs of the two sides. `noise`: of the low runs, among themselves and against the
    float64 runs, and at least one rounding of `scale`, the largest value. `alone`: the only side that has this tensor.
    The numbers are null for integers and booleans, and for tensors that could not be compared element by element.
    """

    step: int | None
    replica: int
    kind: str
    name: str
    verdict: Verdict
    bits: float | None = None
    scale: float | None = None
    difference: float | None = None
    noise: float | None = None
    alone: str = ""


class Counterpart(Result):
    """How a tensor or weight of a pair was matched: its name on each side ("" if it has none), and the evidence."""

    what: Literal["activation", "weight"]
    torch: str
    keras: str
    by: str


class Details(Result):
    """What the HTML report draws.

    `needed`: the bits that a match needs. `tensors`: all compared tensors, in execution order. `losses`: by side, the
    loss of the float64 run in each step, averaged over replicas. `counterparts`: of a pair's tensors and weights; in a
    built-in case, both sides have the same names.
    """

    needed: float
    tensors: list[Compared] = []
    losses: dict[str, list[float | None]] = {}
    counterparts: list[Counterpart] = []


def share(compared: int, of: int) -> Share:
    """Return a share with its percentage, rounded down to a tenth: only all of it is 100%."""
    return Share(compared=compared, of=of, percent=(1000 * compared // of) / 10 if of else None)
