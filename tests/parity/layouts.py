"""Layouts for the tests of their comparison, and what is said of two of them."""

from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from synthetic import by_hand, small_case

from parity.layout import compare_layouts
from parity.results import LayoutCheck
from parity.trace.layout import Layout, Transfer, total
from parity.trace.manifest import Trace

SIDES = ("torch", "keras")


def copied(what: str, source: int, target: int, size: int) -> Transfer:
    return Transfer(what=what, source=source, target=target, bytes=size)  # type: ignore[arg-type]


WHOLE = Layout(
    devices=["a", "b"],
    parameters={"linear1.weight": [0], "linear2.weight": [1]},
    optimizer_state={"linear1.weight.momentum": [0]},
    compute={"linear1": [0], "linear2": [1]},
    backward={"linear1": [0], "linear2": [1]},
    transfers=[copied("activation", 0, 1, 64), copied("gradient", 1, 0, 64)],
    collectives={"all_reduce": 100},
    replicas=1,
)


def moved(**fields: Any) -> Layout:
    """WHOLE with some entries of some aspects changed; None takes an entry away."""
    changes = {}
    for field, change in fields.items():
        if isinstance(change, dict):
            merged = {**getattr(WHOLE, field), **change}
            change = {name: value for name, value in merged.items() if value is not None}
        changes[field] = change
    return replace(WHOLE, **changes)


def sending(layout: Layout, sizes: dict[tuple[str, int, int], int]) -> Layout:
    """The layout with other bytes on some ways; 0: none."""
    ways = {(one.what, one.source, one.target): one.bytes for one in layout.transfers} | sizes
    return replace(layout, transfers=total(copied(*way, size) for way, size in ways.items() if size))


def aspects(found: LayoutCheck) -> list[str]:
    return [line.partition(":")[0] for line in found.declared]


def trace(folder: Path, backend: str, layout: Layout, **changes: Any) -> Trace:
    content = {run: {"step-000000": {"loss/loss": np.asarray(1.0)}} for run in ("low", "high")}
    return by_hand(folder, content, backend, small_case(**changes), layout=layout)


def check(folder: Path, torch: Layout, keras: Layout, **changes: Any) -> LayoutCheck:
    traces = [trace(folder / name, name, layout, **changes) for name, layout in zip(SIDES, (torch, keras), strict=True)]
    return compare_layouts(SIDES, *traces)


def data_parallel(devices: int) -> tuple[Layout, Layout]:
    """As the two frameworks are documented to do it: 100 bytes of gradients, 20 of buffers, uneven parts of a batch."""
    everywhere = list(range(devices))
    modules = {"linear1": everywhere, "linear2": everywhere}
    transfers = []
    for device in everywhere[1:]:
        samples = 11 - device
        transfers += [copied("input", 0, device, 4 * samples), copied("parameter", 0, device, 120)]
        transfers += [copied("output", device, 0, 2 * samples), copied("gradient", 0, device, 2 * samples)]
        transfers += [copied("gradient", device, 0, 100)]
    common = {"devices": ["CPU"] * devices, "compute": modules, "backward": modules, "replicas": devices}
    names, slots = ("linear1.weight", "linear2.weight"), ("linear1.weight.momentum",)
    return (
        Layout(
            parameters={name: [0] for name in names},
            optimizer_state={name: [0] for name in slots},
            transfers=total(transfers),
            **common,
        ),
        Layout(
            parameters=dict.fromkeys(names, everywhere),
            optimizer_state=dict.fromkeys(slots, everywhere),
            collectives={"all_reduce": 100},
            **common,
        ),
    )


def spoilt(side: int, both: tuple[Layout, Layout], **fields: Any) -> tuple[Layout, Layout]:
    """Both layouts with one side's entries changed."""
    layouts = list(both)
    for field, change in fields.items():
        value = getattr(layouts[side], field)
        if isinstance(change, dict):
            change = {**value, **change}
        elif isinstance(change, list):
            change = [*value, *change]
        layouts[side] = replace(layouts[side], **{field: change})
    return layouts[0], layouts[1]
