"""Describe a planted fault: a row of the catalogue, and what it asks of each side."""

from typing import Any, Literal, NamedTuple


class At(NamedTuple):
    """A built-in case, or that of the specimen, with changes that make it small or let a fault show."""

    case: str
    changes: dict[str, Any] = {}


Side = Literal["torch", "keras"]
SIDES: tuple[Side, ...] = ("torch", "keras")


class Site(NamedTuple):
    """The case that a fault is planted on, and where its first effect in execution order is.

    `place` is a glob over names. `step` is None for an effect before the first step.
    """

    at: At
    kind: str
    place: str
    step: int | None = 0


class Fault(NamedTuple):
    """A mutation by name (in faults/ of its side), where it shows, and what must be found.

    `cause` is the id of the cause, "" if the catalogue of causes has none for it. `also` is the id of a cause that may
    be named as well, since it is true too.
    """

    name: str
    side: str  # torch or keras
    site: Site
    cause: str
    also: str = ""


class Row(NamedTuple):
    """A row of the table of faults.

    `mistake` says in words what is wrong. `torch` and `keras` are the columns: where the fault shows when it is planted
    on that side, None if that side does not have it. `cause` is the name of the fault itself unless one is given.
    """

    name: str
    mistake: str
    torch: Site | None
    keras: Site | None
    cause: str | None = None
    also: str = ""

    @property
    def faults(self) -> list[Fault]:
        """Return the fault of each side that has it."""
        sites = ((side, getattr(self, side)) for side in SIDES)
        cause = self.name if self.cause is None else self.cause
        return [Fault(self.name, side, site, cause, self.also) for side, site in sites if site]


def row(
    sides: tuple[Side, ...],
    name: str,
    mistake: str,
    at: At,
    kind: str,
    place: str,
    cause: str | None = None,
    step: int = 0,
    also: str = "",
) -> Row:
    """Return the row of a fault that shows at the same place on all sides that have it.

    One that shows in a parameter is a fault of the initial parameters, which are recorded before the first step.
    """
    site = Site(at, kind, place, None if kind == "parameter" else step)
    torch, keras = (site if side in sides else None for side in SIDES)
    return Row(name, mistake, torch, keras, cause, also)
