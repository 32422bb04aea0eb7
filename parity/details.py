"""The parts of a result that say how much of a case was compared, and what the HTML report draws of it.

They are fields of the structs in parity/results.py.
"""

from typing import Literal

import msgspec

Verdict = Literal["match", "subprecision", "inconclusive", "diverged", "error", "skipped"]
TRAINING, EVALUATION, BATCHES = "training", "evaluation", "other batch sizes"  # the modes of `Extent.not_run`


class Result(msgspec.Struct, kw_only=True):
    """Base class of all parts of a report."""


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
    alone: dict[str, list[str]] = msgspec.field(default_factory=dict)
    not_promoted: dict[str, list[str]] = msgspec.field(default_factory=dict)
    not_run: dict[str, str] = msgspec.field(default_factory=dict)


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
    tensors: list[Compared] = msgspec.field(default_factory=list)
    losses: dict[str, list[float | None]] = msgspec.field(default_factory=dict)
    counterparts: list[Counterpart] = msgspec.field(default_factory=list)


def share(compared: int, of: int) -> Share:
    """Return a share with its percentage, rounded down to a tenth: only all of it is 100%."""
    return Share(compared=compared, of=of, percent=(1000 * compared // of) / 10 if of else None)
