"""Device layouts: what each aspect says, what is declared and how far, and that every difference is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from synthetic import by_hand, small_case

from parity.layout.canonical import Layout, Transfer, merge, total
from parity.layout.compare import compare_layouts, differences
from parity.layout.declared import DECLARED
from parity.numerics.judge import compare
from parity.results import LayoutCheck
from parity.trace.manifest import Trace

SIDES = ("torch", "keras")


def copied(what: str, source: int, target: int, size: int) -> Transfer:
    return Transfer(what=what, source=source, target=target, bytes=size)  # type: ignore[arg-type]


# One layout


def test_transfers_of_one_kind_and_way_are_added_up_in_order() -> None:
    seen = [
        copied("gradient", 1, 0, 8),
        copied("activation", 0, 1, 4),
        copied("gradient", 0, 1, 1),
        copied("activation", 0, 1, 6),
        copied("activation", 0, 2, 5),
    ]
    assert total(seen) == [
        copied("activation", 0, 1, 10),
        copied("activation", 0, 2, 5),
        copied("gradient", 0, 1, 1),
        copied("gradient", 1, 0, 8),
    ]
    assert total([]) == []


def test_the_parts_of_the_ranks_make_one_layout() -> None:
    one = Layout(
        devices=["a", "b"],
        parameters={"w": [0], "v": [0]},
        optimizer_state={"w.momentum": [0]},
        compute={"m": [0]},
        backward={"m": [0]},
        transfers=[copied("activation", 0, 1, 4)],
        collectives={"all_reduce": 8, "broadcast": 2},
        replicas=2,
    )
    other = Layout(
        devices=["a", "b"],
        parameters={"w": [1], "u": [1]},
        optimizer_state={"w.momentum": [1]},
        compute={"m": [1], "n": [1]},
        backward={"m": [1]},
        transfers=[copied("activation", 0, 1, 6), copied("gradient", 1, 0, 4)],
        collectives={"all_reduce": 12},
        replicas=2,
    )
    assert merge([one, other]) == Layout(
        devices=["a", "b"],
        parameters={"w": [0, 1], "v": [0], "u": [1]},
        optimizer_state={"w.momentum": [0, 1]},
        compute={"m": [0, 1], "n": [1]},
        backward={"m": [0, 1]},
        transfers=[copied("activation", 0, 1, 10), copied("gradient", 1, 0, 4)],
        collectives={"all_reduce": 12, "broadcast": 2},  # what a rank gives, not what all give
        replicas=2,
    )
    assert merge([one]) == one
    assert merge([other, one]).parameters == merge([one, other]).parameters


# Two layouts

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


DIFFERENCES: list[tuple[dict[str, Any], str]] = [
    ({"parameters": {"linear2.weight": [0]}}, "parameters: linear2.weight: torch on 1, keras on 0"),
    ({"parameters": {"linear2.weight": [0, 1]}}, "parameters: linear2.weight: torch on 1, keras on 0, 1"),
    ({"parameters": {"linear2.weight": None}}, "parameters: linear2.weight: torch on 1, keras nowhere"),
    ({"parameters": {"more": [0]}}, "parameters: more: torch nowhere, keras on 0"),
    (
        {"optimizer_state": {"linear1.weight.momentum": [1]}},
        "optimizer_state: linear1.weight.momentum: torch on 0, keras on 1",
    ),
    (
        {"optimizer_state": {"linear1.weight.momentum": None}},
        "optimizer_state: linear1.weight.momentum: torch on 0, keras nowhere",
    ),
    ({"compute": {"linear2": [0]}}, "compute: linear2: torch on 1, keras on 0"),
    ({"compute": {"linear2": None}}, "compute: linear2: torch on 1, keras nowhere"),
    ({"backward": {"linear1": [1]}}, "backward: linear1: torch on 0, keras on 1"),
    ({"backward": {"linear1": None}}, "backward: linear1: torch on 0, keras nowhere"),
    (
        {"transfers": [copied("activation", 0, 1, 64)]},
        "transfers: gradient 1 -> 0: torch 64 bytes, keras 0",
    ),
    (
        {"transfers": [copied("activation", 0, 1, 32), copied("gradient", 1, 0, 64)]},
        "transfers: activation 0 -> 1: torch 64 bytes, keras 32",
    ),
    (
        {"transfers": [*WHOLE.transfers, copied("activation", 1, 0, 4)]},
        "transfers: activation 1 -> 0: torch 0 bytes, keras 4",
    ),
    ({"collectives": {"all_reduce": 200}}, "collectives: all_reduce: torch 100 bytes, keras 200"),
    ({"collectives": {"all_reduce": None}}, "collectives: all_reduce: torch 100 bytes, keras 0"),
    ({"collectives": {"broadcast": 8}}, "collectives: broadcast: torch 0 bytes, keras 8"),
    ({"replicas": 2}, "replicas: torch 1, keras 2"),
]


@pytest.mark.parametrize(("change", "said"), DIFFERENCES)
def test_every_difference_is_named(change: dict[str, Any], said: str) -> None:
    case = small_case(strategy="round_robin")
    assert differences(SIDES, case, WHOLE, moved(**change)) == [said]
    assert differences(SIDES, case, WHOLE, WHOLE) == []
    assert len(differences(SIDES, case, moved(**change), WHOLE)) == 1


def test_all_differences_are_named() -> None:
    changes = {field: change for fields, _ in reversed(DIFFERENCES) for field, change in fields.items()}
    found = differences(SIDES, small_case(), WHOLE, moved(**changes))
    aspects = [line.partition(":")[0] for line in found]
    assert aspects == [
        "parameters", "optimizer_state", "compute", "backward", "transfers", "collectives", "replicas",
    ]  # fmt: skip


def test_a_module_without_parameters_must_not_be_seen_by_both() -> None:
    """A compiled graph may have no op of it; where both saw it, both must have seen it in one place."""
    here, there = moved(compute={"dropout": [1]}), moved(compute={"dropout": [0]})
    assert differences(SIDES, small_case(), here, WHOLE) == differences(SIDES, small_case(), WHOLE, here) == []
    assert differences(SIDES, small_case(), here, there) == ["compute: dropout: torch on 1, keras on 0"]


def test_a_container_is_where_its_modules_are() -> None:
    names = {"block": [0, 1], "block.linear": [0], "linear1": None, "linear2": None}
    parameters = {"block.linear.weight": [0], "linear1.weight": None, "linear2.weight": None}
    here = moved(compute=names, parameters=parameters)
    for there in ({"block.linear": [0]}, {"block": [0], "block.linear": [0]}):
        assert differences(SIDES, small_case(), here, replace(here, compute=there)) == []
    assert differences(SIDES, small_case(), here, replace(here, compute={"block": [0, 1]})) == [
        "compute: block.linear: torch on 0, keras nowhere"
    ]


def test_the_names_of_the_devices_are_shown_and_not_compared() -> None:
    assert differences(SIDES, small_case(), WHOLE, moved(devices=["CPU (logical)"] * 2)) == []


# Whole traces


def trace(folder: Path, backend: str, layout: Layout, **changes: Any) -> Trace:
    content = {run: {"step-000000": {"loss/loss": np.asarray(1.0)}} for run in ("low", "high")}
    return by_hand(folder, content, backend, small_case(**changes), layout=layout)


def check(folder: Path, torch: Layout, keras: Layout, **changes: Any) -> LayoutCheck:
    traces = [trace(folder / name, name, layout, **changes) for name, layout in zip(SIDES, (torch, keras), strict=True)]
    return compare_layouts(SIDES, *traces)


def test_another_layout_fails_the_case(tmp_path: Path) -> None:
    other = moved(compute={"linear2": [0]})
    traces = [trace(tmp_path / str(i), name, layout) for i, (name, layout) in enumerate(
        [("torch", WHOLE), ("keras", other), ("keras", WHOLE)]
    )]  # fmt: skip
    wrong, right = compare(*traces[:2]), compare(traces[0], traces[2])
    assert (wrong.verdict, wrong.checks["layout"].verdict) == ("diverged", "diverged")
    assert wrong.reason == "compute: linear2: torch on 1, keras on 0"
    assert wrong.first_divergence is None
    assert (right.verdict, right.checks["layout"].verdict) == ("match", "match")


# What is declared: nn.DataParallel against MirroredStrategy


def data_parallel(devices: int) -> tuple[Layout, Layout]:
    """As the two frameworks are documented to do it, with 100 bytes of gradients."""
    others, everywhere = range(1, devices), list(range(devices))
    modules = {"linear1": everywhere, "linear2": everywhere}
    ways = [("input", 0, 1, 40), ("parameter", 0, 1, 120), ("output", 1, 0, 20), ("gradient", 0, 1, 20)]
    ways += [("gradient", 1, 0, 100)]
    transfers = [
        copied(what, source * device, target * device, size) for device in others for what, source, target, size in ways
    ]
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


def strategy(devices: int = 2) -> dict[str, Any]:
    return {"strategy": "data_parallel", "devices": devices}


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_data_parallel_is_declared(devices: int, tmp_path: Path) -> None:
    found = check(tmp_path, *data_parallel(devices), **strategy(devices))
    assert (found.verdict, found.differences) == ("match", [])
    assert [line.partition(":")[0] for line in found.declared] == ["parameters", "transfers"]
    assert all("DataParallel" in line and "tensorflow.org" in line for line in found.declared)


def test_the_same_layouts_are_not_declared_for_another_strategy(tmp_path: Path) -> None:
    found = check(tmp_path, *data_parallel(2), strategy="ddp", devices=2)
    assert (found.verdict, found.declared) == ("diverged", [])
    assert {line.partition(":")[0] for line in found.differences} == {
        "parameters", "optimizer_state", "transfers", "collectives",
    }  # fmt: skip


def test_one_device_has_nothing_to_declare(tmp_path: Path) -> None:
    torch, keras = data_parallel(1)
    found = check(tmp_path, torch, replace(keras, collectives={}), **strategy(1))
    assert (found.verdict, found.declared) == ("match", [])


def test_two_traces_of_one_backend_have_nothing_declared(tmp_path: Path) -> None:
    torch, keras = data_parallel(2)
    traces = [trace(tmp_path / str(i), "keras", layout, **strategy()) for i, layout in enumerate((torch, keras))]
    found = compare_layouts(("reference", "candidate"), *traces)
    assert (found.verdict, found.declared) == ("diverged", [])


def spoilt(side: int, **fields: Any) -> tuple[Layout, Layout]:
    """data_parallel on three devices with one side's entries changed."""
    layouts = list(data_parallel(3))
    for field, change in fields.items():
        value = getattr(layouts[side], field)
        if isinstance(change, dict):
            change = {**value, **change}
        elif isinstance(change, list):
            change = [*value, *change]
        layouts[side] = replace(layouts[side], **{field: change})
    return layouts[0], layouts[1]


@pytest.mark.parametrize(
    ("side", "fields", "said"),
    [
        (1, {"parameters": {"linear2.weight": [1]}}, ["parameters: linear2.weight: torch on 0, keras on 1"]),
        (1, {"parameters": {"linear2.weight": [0, 1]}}, ["parameters: linear2.weight: torch on 0, keras on 0, 1"]),
        (0, {"parameters": {"linear2.weight": [1]}}, ["parameters: linear2.weight: torch on 1, keras on 0"]),
        (
            0,
            {"parameters": {"linear2.weight": [0, 1, 2]}},
            ["parameters: linear2.weight: torch on 0, 1, 2, keras on 0"],
        ),
        (
            1,
            {"optimizer_state": {"linear1.weight.momentum": [2]}},
            ["optimizer_state: linear1.weight.momentum: torch on 0, keras on 2"],
        ),
        (
            1,
            {"optimizer_state": {"more": [0, 1, 2]}},
            ["optimizer_state: more: torch nowhere, keras on 0"],
        ),
        (1, {"compute": {"linear2": [0]}}, ["compute: linear2: torch on 0, 1, 2, keras on 0"]),
        (0, {"backward": {"linear2": [0]}}, ["backward: linear2: torch on 0, keras on 0, 1, 2"]),
        (0, {"transfers": [copied("gradient", 1, 2, 4)]}, ["transfers: gradient 1 -> 2: torch 4 bytes, keras 0"]),
        (0, {"transfers": [copied("activation", 0, 1, 4)]}, ["transfers: activation 0 -> 1: torch 4 bytes, keras 0"]),
        (1, {"transfers": [copied("activation", 0, 1, 4)]}, ["transfers: activation 0 -> 1: torch 0 bytes, keras 4"]),
        (1, {"collectives": {"broadcast": 4}}, ["collectives: broadcast: torch 0 bytes, keras 4"]),
        (1, {"replicas": 2}, ["replicas: torch 3, keras 2"]),
    ],
)
def test_what_does_not_fit_the_declaration_stays_a_difference(
    side: int, fields: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    found = check(tmp_path, *spoilt(side, **fields), **strategy(3))
    assert (found.verdict, found.differences) == ("diverged", said)
    assert found.declared


@pytest.mark.parametrize("returned", [0, 60, 99])
def test_gradients_that_do_not_all_return_are_not_declared(returned: int, tmp_path: Path) -> None:
    torch, keras = data_parallel(2)
    transfers = [replace(one, bytes=returned) if (one.what, one.target) == ("gradient", 0) else one
                 for one in torch.transfers]  # fmt: skip
    found = check(tmp_path, replace(torch, transfers=transfers), keras, **strategy())
    assert found.verdict == "diverged"
    assert "collectives: all_reduce: torch 0 bytes, keras 100" in found.differences
    assert "transfers: parameter 0 -> 1: torch 120 bytes, keras 0" in found.differences
    assert [line.partition(":")[0] for line in found.declared] == ["parameters"]


def test_a_side_that_does_not_reduce_at_all_is_not_declared(tmp_path: Path) -> None:
    torch, keras = data_parallel(2)
    found = check(tmp_path, torch, replace(keras, collectives={}), **strategy())
    assert found.verdict == "diverged"
    assert "transfers: gradient 1 -> 0: torch 100 bytes, keras 0" in found.differences


def test_every_declaration_has_a_reason_and_a_source() -> None:
    assert DECLARED
    assert all(rule.strategies and rule.reason and rule.source for rule in DECLARED)


def test_the_layouts_themselves_are_shown_as_they_are(tmp_path: Path) -> None:
    torch, keras = data_parallel(2)
    assert check(tmp_path, torch, keras, **strategy()).sides == {"torch": torch, "keras": keras}
