"""Device layouts: their comparison, aspect by aspect, in canonical form. `declared` has what differs by design."""

from collections.abc import Collection, Iterator

import msgspec

from parity.config.schema import Case
from parity.core.wording import count
from parity.layout.declared import DECLARED, MAPPINGS, Sides
from parity.results import LayoutCheck
from parity.trace.layout import Layout
from parity.trace.manifest import Trace


def compare_layouts(names: tuple[str, str], reference: Trace, candidate: Trace) -> LayoutCheck:
    """Compare the device layouts of two traces; return the undeclared differences, and the declared ones that occur.

    `names`: how the two sides are called in messages.
    """
    case, mapping = reference.case, candidate.manifest.mapping
    left_out = mapping.left_out if mapping else ()
    recorded = Sides(reference.manifest.layout, candidate.manifest.layout)
    compared = Sides(*(_without(layout, left_out) for layout in recorded))
    declared = []
    # Declared differences are between the two frameworks: two traces of one backend have none.
    if (reference.backend, candidate.backend) == ("torch", "keras"):
        for rule in DECLARED:
            aligned = rule.apply(case, compared) if isinstance(case.distribution, rule.strategies) else compared
            if aligned != compared:
                declared.append(f"{rule.aspect}: {rule.reason} ({rule.source})")
            compared = aligned
    undeclared = differences(names, case, *compared, recorded)
    sides = dict(zip(names, recorded, strict=True))
    return LayoutCheck(
        verdict="diverged" if undeclared else "match", differences=undeclared, declared=declared, sides=sides
    )


def _without(layout: Layout, left_out: Collection[str]) -> Layout:
    """Return the layout without weights that one side of a pair has and the other does not need, nor their slots."""
    return msgspec.structs.replace(
        layout,
        parameters={name: held for name, held in layout.parameters.items() if name not in left_out},
        optimizer_state={
            name: held for name, held in layout.optimizer_state.items() if name.rpartition(".")[0] not in left_out
        },
    )


def differences(
    names: tuple[str, str], case: Case, left: Layout, right: Layout, recorded: Sides | None = None
) -> list[str]:
    """Return the differences between two layouts, a line each.

    `parity.diagnose` parses these lines, so their form must not change: "ASPECT: NAME: SIDE devices, SIDE devices".
    `recorded`: the layouts before declared differences were removed; the lines quote devices as they are there.
    """
    lines = list(_places(names, case, left, right, recorded or Sides(left, right)))
    ours, theirs = flows(left), flows(right)
    for what in sorted(ours.keys() | theirs.keys()):
        if ours.get(what, 0) != theirs.get(what, 0):
            lines.append(f"{what}: {names[0]} {count(ours.get(what, 0), 'byte')}, {names[1]} {theirs.get(what, 0)}")
    if left.replicas != right.replicas:
        lines.append(f"replicas: {names[0]} {left.replicas}, {names[1]} {right.replicas}")
    return lines


def _places(names: tuple[str, str], case: Case, left: Layout, right: Layout, recorded: Sides) -> Iterator[str]:
    """Yield a line for each parameter, optimizer slot or module that is elsewhere, or cut otherwise, on one side."""
    for aspect in MAPPINGS:
        ours, theirs = getattr(left, aspect), getattr(right, aspect)
        for name in sorted(_compared(aspect, left, right)):
            if ours.get(name) != theirs.get(name):
                devices = [_on(getattr(layout, aspect).get(name)) for layout in recorded]
                yield f"{aspect}: {name}: {names[0]} {devices[0]}, {names[1]} {devices[1]}"
        if aspect == "parameters":
            for name in left.shards.keys() & right.shards.keys():
                cuts = [" + ".join(map(str, layout.shards[name])) for layout in (left, right)]
                if cuts[0] != cuts[1]:
                    yield f"shards: {name}: {names[0]} {cuts[0]} elements, {names[1]} {cuts[1]} elements"
        if aspect in ("compute", "backward") and case.distribution.is_distributed:
            for name in sorted({parameter.rpartition(".")[0] for parameter in left.parameters}):
                if not any(f"{name}.".startswith(f"{observed}.") for observed in (*ours, *theirs)):
                    yield f"{aspect}: {name}: not observed on either side"


def flows(layout: Layout) -> dict[str, int]:
    """Return the bytes of every transfer and collective, by a description such as "transfers: activation 0 -> 1"."""
    copies = {
        f"transfers: {transfer.what} {transfer.source} -> {transfer.target}": transfer.bytes
        for transfer in layout.transfers
    }
    return copies | {f"collectives: {operation}": size for operation, size in layout.collectives.items()}


def _compared(aspect: str, left: Layout, right: Layout) -> set[str]:
    """Return the names to compare: all parameters and slots; of leaf modules, those observed on both sides.

    A module without ops of its own (a Dropout at rate 0) leaves no trace in a compiled graph, and may be missing on one
    side; a module that owns parameters may not.
    """
    ours, theirs = getattr(left, aspect), getattr(right, aspect)
    observed = {*ours, *theirs}
    if aspect in ("parameters", "optimizer_state"):
        return observed
    owners = {name.rpartition(".")[0] for name in left.parameters}
    leaves = {name for name in observed if not any(longer.startswith(f"{name}.") for longer in observed)}
    return {name for name in leaves if (name in ours and name in theirs) or name in owners}


def _on(devices: list[int] | None) -> str:
    return "nowhere" if not devices else "on " + ", ".join(map(str, devices))
