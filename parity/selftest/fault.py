"""A planted fault, as the catalogue lists it."""

from typing import Any, NamedTuple

from parity.selftest.small_cases import At


class Fault(NamedTuple):
    """A mutation by name (harness/faults on its side), the case that shows it, and what is to be said of it.

    `changes` are merged over the built-in case. `step`, `kind` and `place`, a glob over names, are of the
    first effect in execution order; step None is before the first. `cause`: its id, "" where it has none;
    `also`: an id that is true of it too.
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
    """A fault whose cause has its own name, unless another is given."""
    cause = name if cause is None else cause
    return Fault(name, side, at.case, at.changes, step, kind, place, cause, also)
