"""Describe a planted fault: a row of the catalogue, what it asks of each side, and the small cases to plant it on."""

from typing import Any, Literal, NamedTuple


class At(NamedTuple):
    """A built-in case, or that of the specimen, with changes that make it small or let a fault show."""

    case: str
    changes: dict[str, Any] = {}


SMALL = {
    "vocabulary": 100, "d_model": 32, "feed_forward": 64, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0,
}  # fmt: skip
PATCHES = {"model": {"out_channels": 4}, "data": {"batch": 4, "size": 8}}

STACK = At("linear_stack/single", {"model": {"width": 64, "layers": 3}})
BLOCK = At("simple_block/single")
ADAM = At("simple_block/single@adam")
ADAMW = At("simple_block/single@adamw")
CLIP = At("simple_block/single@clip")
SCHEDULE = At("simple_block/single@schedule")
ACCUMULATE = At("simple_block/single@accumulate", {"data": {"batch": 30}})  # equal micro-batches
TWO_STEPS = At("simple_block/single", {"steps": 2})
DDP = At("simple_block/ddp")
DDP_CLIP = At("simple_block/ddp@clip")
UNEVEN = At("simple_block/ddp@uneven")
ALL_REDUCE = At("simple_block/all_reduce", {"steps": 4})  # the last of which is in the second epoch
REGRESSION = At("two_linear/single")
CLASSES = At("two_linear/single@cross_entropy")
AS_MANY_SAMPLES = At("two_linear/single@cross_entropy", {"data": {"batch": 10}})  # as classes
SATURATED = At("two_linear/single@cross_entropy", {"weight_scale": {"linear1.weight": 50.0, "linear2.weight": 50.0}})
STAGES = At("two_linear/send_recv")
RESIDUAL = At("residual_block/single", PATCHES)
RESIDUAL_DDP = At("residual_block/ddp", PATCHES | {"steps": 2})
BRANCHES = At("residual_block/branch_parallel", PATCHES)
TRANSFORMER = At("transformer/single", {"model": SMALL, "data": {"batch": 4}})
DROPOUT = At("transformer/single", {"model": SMALL | {"dropout": 0.1}, "data": {"batch": 4}, "steps": 2})
DROPOUT_DDP = At("transformer/ddp", DROPOUT.changes)
MANY_WORDS = At("transformer/single", {"model": SMALL | {"vocabulary": 1000}, "data": {"batch": 4}})
CAUSAL = At("transformer/single", {"model": SMALL | {"causal": True}, "data": {"batch": 4}})
SPECIMEN = At("specimen/single")


Side = Literal["torch", "keras"]
SIDES: tuple[Side, ...] = ("torch", "keras")


class Fault(NamedTuple):
    """A mutation by name (in faults/ of its side), the case that shows it, and what must be found.

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


class Site(NamedTuple):
    """The case that a fault is planted on, and where its first effect is: see Fault."""

    at: At
    kind: str
    place: str
    step: int | None = 0


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
        return [
            Fault(self.name, side, site.at.case, site.at.changes, site.step, site.kind, site.place, cause, self.also)
            for side, site in sites
            if site
        ]


def row(
    sides: tuple[Side, ...],
    name: str,
    mistake: str,
    at: At,
    kind: str,
    place: str,
    cause: str | None = None,
    step: int | None = 0,
    also: str = "",
) -> Row:
    """Return the row of a fault that shows at the same place on all sides that have it."""
    site = Site(at, kind, place, step)
    torch, keras = (site if side in sides else None for side in SIDES)
    return Row(name, mistake, torch, keras, cause, also)
