"""Device layouts in canonical form: on which logical device parameters, computation and transfers were.

A layout describes the first training step, as observed while it ran, not as it was planned.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from parity.core.groups import by_key

Devices = list[int]
Route = tuple[str, int, int]  # of a transfer: what, source, target


class Transfer(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The total size of all copies of one kind from one logical device to another.

    `what`: an activation in the forward pass, a gradient in the backward pass, a parameter or buffer
    that is copied to build a replica, or an input or output of a replica.
    """

    what: Literal["activation", "gradient", "parameter", "input", "output"]
    source: int
    target: int
    bytes: int

    @property
    def route(self) -> Route:
        return self.what, self.source, self.target


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that one run of a case used.

    `devices`: the physical device of each logical device, followed by "(virtual)" if that one has no
    physical device of its own. `parameters`, `optimizer_state` (by `parameter.slot`), `compute`
    (forward, by module) and `backward` (by module) map names to logical devices. `shards` maps each parameter and slot
    that no device holds whole to the numbers of its elements on every device. `collectives` maps each collective
    operation to the bytes that one rank or replica contributed to it.
    """

    devices: list[str]
    parameters: dict[str, Devices]
    optimizer_state: dict[str, Devices] = {}
    shards: dict[str, list[int]] = {}
    compute: dict[str, Devices] = {}
    backward: dict[str, Devices] = {}
    transfers: list[Transfer] = []
    collectives: dict[str, int] = {}
    replicas: int = 1

    @property
    def routes(self) -> dict[Route, int]:
        """Return the bytes of each transfer by its route."""
        return {transfer.route: transfer.bytes for transfer in self.transfers}


class Held(NamedTuple):
    """The pieces of a tensor, each a device and the number of elements on it; `whole`: the elements of the tensor."""

    pieces: list[tuple[int, int]]
    whole: int

    @property
    def devices(self) -> Devices:
        """Return the devices that hold a part of it; a device may have an empty piece."""
        return sorted({device for device, size in self.pieces if size})


def shards(tensors: Mapping[str, Held], devices: int) -> dict[str, list[int]]:
    """Return the elements on each of the devices, of those tensors that no device holds whole.

    A rank knows its own pieces alone. Of a tensor of which it has only an empty one it cannot tell: another rank may
    hold it whole.
    """
    sizes: dict[str, Counter[int]] = {}
    for name, held in tensors.items():
        for device, size in held.pieces:
            sizes.setdefault(name, Counter())[device] += size
    return {
        name: [counted[device] for device in range(devices)]
        for name, counted in sizes.items()
        if 0 < max(counted.values()) < tensors[name].whole
    }


def total(transfers: Iterable[Transfer]) -> list[Transfer]:
    """Return the transfers in order, with the bytes of equal kind, source and target added up."""
    sums: Counter[Route] = Counter()
    for transfer in transfers:
        sums[transfer.route] += transfer.bytes
    return sorted(
        Transfer(what=what, source=source, target=target, bytes=size)  # type: ignore[arg-type]
        for (what, source, target), size in sums.items()
    )


def merge(parts: list[Layout], staged: bool = False) -> Layout:
    """Merge the layouts that the ranks of a run have observed, each its own part.

    `staged`: consecutive ranks hold the stages of one replica, so that each of them contributes only its own
    parameters to collectives and their bytes add up; otherwise every rank contributes all parameters.
    """

    def united(field: str) -> dict[str, Devices]:
        placed = by_key(entry for part in parts for entry in getattr(part, field).items())
        return {name: sorted(set().union(*devices)) for name, devices in placed.items()}

    pieces = by_key(entry for part in parts for entry in part.shards.items())
    alone = len(parts[0].devices) == 1  # a collective over a single device moves nothing
    operations = [] if alone else sorted({name for part in parts for name in part.collectives})
    stages = max(len(parts) // parts[0].replicas, 1) if staged else 1
    return Layout(
        devices=parts[0].devices,
        parameters=united("parameters"),
        optimizer_state=united("optimizer_state"),
        shards={name: [sum(column) for column in zip(*rows, strict=True)] for name, rows in pieces.items()},
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
