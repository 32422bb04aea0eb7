"""A device layout in canonical form: what happened where, by logical device.

Everything is of one training step, the first, and of what was seen in it, not of what was planned.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

Devices = list[int]


class Transfer(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Copies of one kind from one logical device to another, their bytes added up.

    `what`: an activation on its way forward, a gradient on its way backward, a parameter (or a
    buffer) that a replica is made of, an input or an output that replicas are given or give.
    """

    what: Literal["activation", "gradient", "parameter", "input", "output"]
    source: int
    target: int
    bytes: int


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where one run of a case happened.

    `devices`: the physical device of each logical one, "(virtual)" behind it where it has none of
    its own. `parameters`, `optimizer_state` (`parameter.slot`), `compute` (forward) and `backward`
    (modules): name to the devices. `collectives`: the operation to the bytes that each rank or
    replica gave into it.
    """

    devices: list[str]
    parameters: dict[str, Devices]
    optimizer_state: dict[str, Devices] = {}
    compute: dict[str, Devices] = {}
    backward: dict[str, Devices] = {}
    transfers: list[Transfer] = []
    collectives: dict[str, int] = {}
    replicas: int = 1


def total(transfers: Iterable[Transfer]) -> list[Transfer]:
    """The transfers with those of one kind and way added up, in order."""
    sums: dict[tuple[str, int, int], int] = {}
    for one in transfers:
        way = one.what, one.source, one.target
        sums[way] = sums.get(way, 0) + one.bytes
    return sorted(
        Transfer(what=what, source=source, target=target, bytes=size)  # type: ignore[arg-type]
        for (what, source, target), size in sums.items()
    )


def merge(parts: list[Layout], staged: bool = False) -> Layout:
    """The layout of a run whose ranks saw a part each.

    `staged`: consecutive ranks hold the stages of a replica, each of which gives its own parameters
    into collectives; else every rank gives all.
    """

    def united(field: str) -> dict[str, Devices]:
        devices: dict[str, set[int]] = {}
        for part in parts:
            for name, seen in getattr(part, field).items():
                devices.setdefault(name, set()).update(seen)
        return {name: sorted(seen) for name, seen in devices.items()}

    alone = len(parts[0].devices) == 1  # what a rank gives to itself goes nowhere
    operations = [] if alone else sorted({name for part in parts for name in part.collectives})
    stages = max(len(parts) // parts[0].replicas, 1) if staged else 1
    return Layout(
        devices=parts[0].devices,
        parameters=united("parameters"),
        optimizer_state=united("optimizer_state"),
        compute=united("compute"),
        backward=united("backward"),
        transfers=total(transfer for part in parts for transfer in part.transfers),
        collectives={
            name: max(
                sum(part.collectives.get(name, 0) for part in parts[start : start + stages])
                for start in range(0, len(parts), stages)
            )
            for name in operations
        },
        replicas=parts[0].replicas,
    )
