"""Describe a planted fault as the catalogue lists it."""

from typing import Any, NamedTuple

from parity.selftest.small_cases import At


class Fault(NamedTuple):
    """A mutation by name (in harness/faults of its side), the case that shows it, and what must be found.

    `changes` are merged over the built-in case. `step`, `kind` and `place` (a glob over names) are those of the first
    effect in execution order; the step is None for an effect before the first step. `cause` is the id of the cause,
    "" if the catalogue of causes has none for it. `also` is the id of a cause that may be named as well, since it is
    true too.
    """

    name: str
    side: str  # torch or keras
    case: str
    changes: dict[str, Any]
    step: int | None
    kind: str
    place: str
    cause: str
    also: str = ""


def planted(
    side: str,
    name: str,
    at: At,
    kind: str,
    place: str,
    cause: str | None = None,
    step: int | None = 0,
    also: str = "",
) -> Fault:
    """Return a fault whose cause has the fault's own name, unless another one is given."""
    cause = name if cause is None else cause
    return Fault(name, side, at.case, at.changes, step, kind, place, cause, also)
