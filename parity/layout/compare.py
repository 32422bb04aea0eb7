"""Two device layouts, compared aspect by aspect in canonical form."""

from typing import Any

from parity.config.schema import Case
from parity.layout.canonical import Layout
from parity.layout.declared import DECLARED, Sides
from parity.results import LayoutCheck
from parity.trace.manifest import Trace

MAPPINGS = ("parameters", "optimizer_state", "compute", "backward")


def compare_layouts(names: tuple[str, str], reference: Trace, candidate: Trace) -> LayoutCheck:
    """Every difference that is not declared, and the declared ones that occur."""
    case = reference.case
    one, other = reference.manifest.layout, candidate.manifest.layout
    declared = []
    # What is declared is a difference between the frameworks: one backend twice has none.
    if (reference.backend, candidate.backend) == ("torch", "keras"):
        for rule in DECLARED:
            if case.strategy in rule.strategies and (alike := rule.apply(case, Sides(one, other))) is not None:
                one, other = alike
                declared.append(f"{rule.aspect}: {rule.reason} ({rule.source})")
    found = differences(names, case, one, other)
    sides = dict(zip(names, (reference.manifest.layout, candidate.manifest.layout), strict=True))
    return LayoutCheck(verdict="diverged" if found else "match", differences=found, declared=declared, sides=sides)


def differences(names: tuple[str, str], case: Case, one: Layout, other: Layout) -> list[str]:
    """What differs between two layouts, a line each."""
    found = []
    for aspect in MAPPINGS:
        here, there = getattr(one, aspect), getattr(other, aspect)
        for name in sorted(_compared(aspect, one, other, case)):
            if here.get(name) != there.get(name):
                found.append(
                    f"{aspect}: {name}: {names[0]} {_said(here.get(name))}, {names[1]} {_said(there.get(name))}"
                )
    ways = {(t.what, t.source, t.target): t.bytes for t in one.transfers}
    others = {(t.what, t.source, t.target): t.bytes for t in other.transfers}
    for what, source, target in sorted(ways.keys() | others.keys()):
        here, there = ways.get((what, source, target), 0), others.get((what, source, target), 0)
        if here != there:
            found.append(f"transfers: {what} {source} -> {target}: {names[0]} {here} bytes, {names[1]} {there}")
    for operation in sorted(one.collectives.keys() | other.collectives.keys()):
        here, there = one.collectives.get(operation, 0), other.collectives.get(operation, 0)
        if here != there:
            found.append(f"collectives: {operation}: {names[0]} {here} bytes, {names[1]} {there}")
    if one.replicas != other.replicas:
        found.append(f"replicas: {names[0]} {one.replicas}, {names[1]} {other.replicas}")
    return found


def _compared(aspect: str, one: Layout, other: Layout, case: Case) -> set[str]:
    """The names to compare: all parameters, but of modules those that both sides saw compute.

    A module without ops of its own (a Dropout at rate 0) leaves no evidence in a compiled graph; one
    that holds parameters must be seen on both sides.
    """
    here, there = getattr(one, aspect), getattr(other, aspect)
    if aspect in ("parameters", "optimizer_state"):
        return set(here) | set(there)
    owners = {name.rpartition(".")[0] for name in one.parameters}
    seen = set(here) | set(there)
    leaves = {name for name in seen if not any(longer.startswith(f"{name}.") for longer in seen)}
    return {name for name in leaves if (name in here and name in there) or name in owners}


def _said(devices: Any) -> str:
    return "nowhere" if not devices else "on " + ", ".join(map(str, devices))
