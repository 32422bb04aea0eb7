"""Two device layouts, compared aspect by aspect in canonical form."""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from parity.config.schema import Case
from parity.layout.declared import DECLARED, MAPPINGS, Sides
from parity.results import LayoutCheck
from parity.trace.layout import Layout
from parity.trace.manifest import Trace


def compare_layouts(names: tuple[str, str], reference: Trace, candidate: Trace) -> LayoutCheck:
    """Every difference that is not declared, and the declared ones that occur."""
    case, mapping = reference.case, candidate.manifest.mapping
    ignored = mapping.ignored if mapping else ()
    one, other = (_without(trace.manifest.layout, ignored) for trace in (reference, candidate))
    declared = []
    # What is declared is a difference between the frameworks: one backend twice has none.
    if (reference.backend, candidate.backend) == ("torch", "keras"):
        for rule in DECLARED:
            if case.strategy in rule.strategies and (alike := rule.apply(case, Sides(one, other))) is not None:
                one, other = alike
                declared.append(f"{rule.aspect}: {rule.reason} ({rule.source})")
    seen = Sides(reference.manifest.layout, candidate.manifest.layout)
    found = differences(names, case, one, other, seen)
    sides = dict(zip(names, seen, strict=True))
    return LayoutCheck(verdict="diverged" if found else "match", differences=found, declared=declared, sides=sides)


def _without(layout: Layout, ignored: Collection[str]) -> Layout:
    """Return the layout without weights that one side of a pair has and the other does not need, nor their slots."""
    return msgspec.structs.replace(
        layout,
        parameters={name: held for name, held in layout.parameters.items() if name not in ignored},
        optimizer_state={
            name: held for name, held in layout.optimizer_state.items() if name.rpartition(".")[0] not in ignored
        },
    )


def differences(names: tuple[str, str], case: Case, one: Layout, other: Layout, seen: Sides | None = None) -> list[str]:
    """What differs between two layouts, a line each. `seen`: the layouts with what is declared, to be told of."""
    found = [*_places(names, case, one, other, seen or Sides(one, other)), *_flows(names, one, other)]
    if one.replicas != other.replicas:
        found.append(f"replicas: {names[0]} {one.replicas}, {names[1]} {other.replicas}")
    return found


def _places(names: tuple[str, str], case: Case, one: Layout, other: Layout, seen: Sides) -> Iterator[str]:
    """Parameters and slots that are held elsewhere, modules that ran elsewhere."""
    for aspect in MAPPINGS:
        here, there = getattr(one, aspect), getattr(other, aspect)
        for name in sorted(_compared(aspect, one, other)):
            if here.get(name) != there.get(name):
                places = [_said(getattr(layout, aspect).get(name)) for layout in seen]
                yield f"{aspect}: {name}: {names[0]} {places[0]}, {names[1]} {places[1]}"
        if aspect in ("compute", "backward") and case.strategy != "single":
            yield from (
                f"{aspect}: {name}: seen on neither side" for name in sorted(_unseen(one.parameters, here, there))
            )


def _flows(names: tuple[str, str], one: Layout, other: Layout) -> Iterator[str]:
    """Copies and collectives of another size, or on one side only."""
    here, there = flows(one), flows(other)
    for what in sorted(here.keys() | there.keys()):
        if here.get(what, 0) != there.get(what, 0):
            yield f"{what}: {names[0]} {here.get(what, 0)} bytes, {names[1]} {there.get(what, 0)}"


def flows(layout: Layout) -> dict[str, int]:
    """Every way that bytes went, and how many."""
    copies = {f"transfers: {one.what} {one.source} -> {one.target}": one.bytes for one in layout.transfers}
    return copies | {f"collectives: {operation}": size for operation, size in layout.collectives.items()}


def _compared(aspect: str, one: Layout, other: Layout) -> set[str]:
    """The names to compare: all parameters, but of modules those that both sides saw compute.

    A module without ops of its own (a Dropout at rate 0) leaves no evidence in a compiled graph; one
    that holds parameters must be seen on both sides.
    """
    here, there = getattr(one, aspect), getattr(other, aspect)
    if aspect in ("parameters", "optimizer_state"):
        return set(here) | set(there)
    owners = {_owner(name) for name in one.parameters}
    seen = set(here) | set(there)
    leaves = {name for name in seen if not any(longer.startswith(f"{name}.") for longer in seen)}
    return {name for name in leaves if (name in here and name in there) or name in owners}


def _unseen(parameters: Iterable[str], here: Iterable[str], there: Iterable[str]) -> set[str]:
    """The owners of parameters of which no side saw an op, nor of a module around them."""
    seen = {*here, *there}
    owners = {_owner(name) for name in parameters}
    return {owner for owner in owners if not any(f"{owner}.".startswith(f"{name}.") for name in seen)}


def _owner(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _said(devices: list[int] | None) -> str:
    return "nowhere" if not devices else "on " + ", ".join(map(str, devices))
