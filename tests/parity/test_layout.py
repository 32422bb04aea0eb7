"""Device layouts: what each aspect says, what is declared and how far, and that every difference is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from synthetic import by_hand, small_case

from parity.layout.compare import compare_layouts, differences
from parity.layout.declared import DECLARED, Sides
from parity.results import LayoutCheck
from parity.trace.layout import Layout, Transfer, merge, total
from parity.trace.manifest import Trace
from parity.trace.mapping import Mapping
from parity.verdict.traces import compare

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


@pytest.mark.parametrize(
    ("replicas", "staged", "expected"),
    [
        (1, False, {"all_reduce": 40, "broadcast": 4}),
        (2, False, {"all_reduce": 40, "broadcast": 4}),
        (4, False, {"all_reduce": 40, "broadcast": 4}),
        (1, True, {"all_reduce": 82, "broadcast": 5}),  # four stages
        (2, True, {"all_reduce": 52, "broadcast": 4}),  # 10 + 20, and 40 + 12
        (4, True, {"all_reduce": 40, "broadcast": 4}),  # one stage each
    ],
)
def test_the_stages_of_a_replica_give_a_part_each_into_collectives(
    replicas: int, staged: bool, expected: dict[str, int]
) -> None:
    """What a replica gives, the one that gives most; ranks that are no stages give all of it."""
    given = [{"all_reduce": 10}, {"all_reduce": 20, "broadcast": 1}, {"all_reduce": 40}, {"all_reduce": 12}]
    given[3]["broadcast"] = 4
    common = {"devices": ["CPU"] * 4, "parameters": {}, "replicas": replicas}
    parts = [Layout(collectives=each, **common) for each in given]
    assert merge(parts, staged).collectives == expected
    assert staged or merge(parts).collectives == expected


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_one_process_that_holds_every_stage_has_seen_all(replicas: int) -> None:
    one = Layout(devices=["CPU"] * 4, parameters={"w": [0, 2]}, collectives={"all_reduce": 8}, replicas=replicas)
    assert merge([one], staged=True) == merge([one]) == one


@pytest.mark.parametrize("staged", [False, True])
def test_what_a_device_gives_to_itself_is_no_collective(staged: bool) -> None:
    one = Layout(devices=["CPU"], parameters={"w": [0]}, collectives={"all_reduce": 8, "broadcast": 2})
    assert merge([one], staged) == replace(one, collectives={})


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
    ({"parameters": {"linear2.bias": [0]}}, "parameters: linear2.bias: torch nowhere, keras on 0"),
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
        "parameters", "optimizer_state", "compute", "backward", "collectives", "transfers", "replicas",
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


@pytest.mark.parametrize("aspect", ["compute", "backward"])
def test_a_module_with_parameters_that_no_side_saw_is_named(aspect: str) -> None:
    """Two sides that saw nothing agree in nothing."""
    unseen = moved(**{aspect: {"linear2": None}})
    spread, alone = small_case(strategy="round_robin"), small_case()
    assert differences(SIDES, spread, unseen, unseen) == [f"{aspect}: linear2: not observed on either side"]
    assert differences(SIDES, alone, unseen, unseen) == []  # where all is on one device anyway
    assert differences(SIDES, spread, unseen, WHOLE) == [f"{aspect}: linear2: torch nowhere, keras on 1"]
    assert differences(SIDES, spread, WHOLE, unseen) == [f"{aspect}: linear2: torch on 1, keras nowhere"]


def test_all_modules_that_no_side_saw_are_named() -> None:
    blind = moved(compute={"linear1": None, "linear2": None}, backward={"linear1": None, "linear2": None})
    assert sorted(differences(SIDES, small_case(strategy="pipeline"), blind, blind)) == [
        f"{aspect}: {name}: not observed on either side"
        for aspect in ("backward", "compute")
        for name in ("linear1", "linear2")
    ]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"block.attention": [0]}, []),
        ({"block": [0]}, []),  # a module around it, which a compiled graph tells instead
        ({"block.attention.projection": [0]}, ["compute: block.attention: not observed on either side"]),
        ({"block.att": [0]}, ["compute: block.attention: not observed on either side"]),
        ({"block.attention2": [0]}, ["compute: block.attention: not observed on either side"]),
        ({"attention": [0]}, ["compute: block.attention: not observed on either side"]),
    ],
)
def test_a_module_is_seen_by_itself_or_a_module_around_it(seen: dict[str, Any], said: list[str]) -> None:
    layout = Layout(
        devices=["a"],
        parameters={"block.attention.weight": [0]},
        compute=seen,
        backward={"block.attention": [0]},
    )
    assert differences(SIDES, small_case(strategy="round_robin"), layout, layout) == said


def test_what_no_side_saw_fails_the_case(tmp_path: Path) -> None:
    unseen = moved(backward={"linear1": None})
    found = check(tmp_path, unseen, unseen, strategy="round_robin")
    assert (found.verdict, found.differences) == ("diverged", ["backward: linear1: not observed on either side"])
    assert check(tmp_path, unseen, unseen).verdict == "match"  # on a single device


def test_differences_are_told_as_they_were_seen() -> None:
    """Compared is what is left of the layouts without what is declared."""
    case = small_case(strategy="round_robin")
    here = moved(parameters={"linear1.weight": [0, 1]}, compute={"linear1": [0, 1]})
    there = moved(parameters={"linear1.weight": [1]}, compute={"linear1": [1]})
    assert differences(SIDES, case, WHOLE, WHOLE, Sides(here, there)) == []
    changed = moved(parameters={"linear1.weight": [1]}, compute={"linear2": [0]})
    assert differences(SIDES, case, WHOLE, changed, Sides(here, there)) == [
        "parameters: linear1.weight: torch on 0, 1, keras on 1",
        "compute: linear2: torch on 1, keras on 1",
    ]


def test_the_names_of_the_devices_are_shown_and_not_compared() -> None:
    assert differences(SIDES, small_case(), WHOLE, moved(devices=["CPU (logical)"] * 2)) == []


# Whole traces


def sending(layout: Layout, sizes: dict[tuple[str, int, int], int]) -> Layout:
    """The layout with other bytes on some ways; 0: none."""
    ways = {(one.what, one.source, one.target): one.bytes for one in layout.transfers} | sizes
    return replace(layout, transfers=total(copied(*way, size) for way, size in ways.items() if size))


def told(side: int, transfers: list[Transfer]) -> list[str]:
    """What is said where no flow is declared: every copy of one side, and the other's all_reduce of 100 bytes."""
    here, there = ("torch {} bytes, keras 0", "torch 0 bytes, keras {}")[:: -1 if side else 1]
    copies = [f"transfers: {one.what} {one.source} -> {one.target}: {here.format(one.bytes)}" for one in transfers]
    return [f"collectives: all_reduce: {there.format(100)}", *copies]


def aspects(found: LayoutCheck) -> list[str]:
    return [line.partition(":")[0] for line in found.declared]


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
    more = compare(traces[0], trace(tmp_path / "more", "keras", moved(compute={"linear2": [0]}, replicas=2)))
    found = more.checks["layout"]
    assert isinstance(found, LayoutCheck)
    assert found.differences == ["compute: linear2: torch on 1, keras on 0", "replicas: torch 1, keras 2"]
    assert more.reason == found.differences[0]  # the others are in the check
    assert (right.verdict, right.checks["layout"].verdict) == ("match", "match")


@pytest.mark.parametrize(("ignored", "verdict"), [(["unused.weight"], "match"), ([], "diverged")])
def test_a_weight_that_is_ignored_need_not_be_anywhere(ignored: list[str], verdict: str, tmp_path: Path) -> None:
    held = moved(parameters={"unused.weight": [0]}, optimizer_state={"unused.weight.momentum": [0]})
    torch, keras = (trace(tmp_path / name, name, layout) for name, layout in zip(SIDES, (held, WHOLE), strict=True))
    keras.manifest = replace(keras.manifest, mapping=Mapping(entries=[], ignored=ignored))
    assert compare_layouts(SIDES, torch, keras).verdict == verdict


# What is declared: nn.DataParallel against MirroredStrategy


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


def strategy(devices: int = 2) -> dict[str, Any]:
    return {"strategy": "data_parallel", "devices": devices}


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_data_parallel_is_declared(devices: int, tmp_path: Path) -> None:
    found = check(tmp_path, *data_parallel(devices), **strategy(devices))
    assert (found.verdict, found.differences) == ("match", [])
    assert aspects(found) == ["parameters", "transfers"]
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


@pytest.mark.parametrize(
    ("side", "fields", "said"),
    [
        (1, {"parameters": {"linear2.weight": [1]}}, ["parameters: linear2.weight: torch on 0, keras on 1"]),
        (1, {"parameters": {"linear2.weight": [0, 1]}}, ["parameters: linear2.weight: torch on 0, keras on 0, 1"]),
        (0, {"parameters": {"linear2.weight": [1]}}, ["parameters: linear2.weight: torch on 1, keras on 0, 1, 2"]),
        (
            0,
            {"parameters": {"linear2.weight": [0, 1]}},
            ["parameters: linear2.weight: torch on 0, 1, keras on 0, 1, 2"],
        ),
        (
            1,
            {"optimizer_state": {"linear1.weight.momentum": [2]}},
            ["optimizer_state: linear1.weight.momentum: torch on 0, keras on 2"],
        ),
        (
            1,
            {"optimizer_state": {"more": [0, 1, 2]}},
            ["optimizer_state: more: torch nowhere, keras on 0, 1, 2"],
        ),
        (1, {"compute": {"linear2": [0]}}, ["compute: linear2: torch on 0, 1, 2, keras on 0"]),
        (0, {"backward": {"linear2": [0]}}, ["backward: linear2: torch on 0, keras on 0, 1, 2"]),
        (0, {"transfers": [copied("gradient", 1, 2, 4)]}, ["transfers: gradient 1 -> 2: torch 4 bytes, keras 0"]),
        (0, {"transfers": [copied("activation", 0, 1, 4)]}, ["transfers: activation 0 -> 1: torch 4 bytes, keras 0"]),
        (1, {"transfers": [copied("activation", 0, 1, 4)]}, ["transfers: activation 0 -> 1: torch 0 bytes, keras 4"]),
        (0, {"transfers": [copied("input", 1, 2, 4)]}, ["transfers: input 1 -> 2: torch 4 bytes, keras 0"]),
        (0, {"transfers": [copied("parameter", 1, 0, 4)]}, ["transfers: parameter 1 -> 0: torch 4 bytes, keras 0"]),
        (0, {"transfers": [copied("output", 0, 1, 4)]}, ["transfers: output 0 -> 1: torch 4 bytes, keras 0"]),
        (1, {"transfers": [copied("gradient", 1, 0, 4)]}, ["transfers: gradient 1 -> 0: torch 0 bytes, keras 4"]),
        (1, {"collectives": {"broadcast": 4}}, ["collectives: broadcast: torch 0 bytes, keras 4"]),
        (0, {"collectives": {"all_reduce": 100}}, ["collectives: all_reduce: torch 100 bytes, keras 0"]),
        (1, {"replicas": 2}, ["replicas: torch 3, keras 2"]),
    ],
)
def test_what_does_not_fit_the_declaration_stays_a_difference(
    side: int, fields: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    found = check(tmp_path, *spoilt(side, data_parallel(3), **fields), **strategy(3))
    assert (found.verdict, found.differences) == ("diverged", said)
    assert found.declared


@pytest.mark.parametrize("aspect", ["parameters", "optimizer_state"])
def test_what_pytorch_holds_everywhere_is_not_declared(aspect: str, tmp_path: Path) -> None:
    """It is a difference where Keras has it on device 0, and none where Keras has it everywhere too."""
    torch, keras = data_parallel(3)
    spread = replace(torch, **{aspect: getattr(keras, aspect)})
    found = check(tmp_path / "swapped", spread, replace(keras, **{aspect: getattr(torch, aspect)}), **strategy(3))
    assert found.differences == [
        f"{aspect}: {name}: torch on 0, 1, 2, keras on 0" for name in sorted(getattr(torch, aspect))
    ]
    assert check(tmp_path / "alike", spread, keras, **strategy(3)).differences == []


def test_copies_on_both_sides_are_nothing_to_declare(tmp_path: Path) -> None:
    torch, keras = data_parallel(3)
    torch = replace(torch, parameters=keras.parameters, optimizer_state=keras.optimizer_state)
    found = check(tmp_path, torch, keras, **strategy(3))
    assert (found.differences, aspects(found)) == ([], ["transfers"])


@pytest.mark.parametrize(
    "sizes",
    [
        {("gradient", 1, 0): 50, ("gradient", 2, 0): 150},  # as much as it should be, but not of each device
        {("gradient", 1, 0): 200, ("gradient", 2, 0): 0},
        {("gradient", 1, 0): 99},
        {("output", 1, 0): 21},
        {("output", 1, 0): 0},
        {("gradient", 0, 2): 0},
        {("gradient", 0, 1): 18, ("gradient", 0, 2): 20},  # of each other's outputs
        {("parameter", 0, 1): 0},
        {("parameter", 0, 1): 0, ("parameter", 0, 2): 0},
        {("parameter", 0, 2): 119},
        {("parameter", 0, 1): 110, ("parameter", 0, 2): 130},
        {("input", 0, 2): 0},
        {("input", 0, 1): 0, ("input", 0, 2): 76},
    ],
)
def test_other_copies_than_those_that_data_parallel_declares_are_all_told(
    sizes: dict[tuple[str, int, int], int], tmp_path: Path
) -> None:
    torch, keras = data_parallel(3)
    torch = sending(torch, sizes)
    found = check(tmp_path, torch, keras, **strategy(3))
    assert (found.verdict, aspects(found)) == ("diverged", ["parameters"])
    assert found.differences == told(0, torch.transfers)


@pytest.mark.parametrize("returned", [0, 60, 99, 101, 200])
def test_gradients_that_do_not_all_return_are_not_declared(returned: int, tmp_path: Path) -> None:
    torch, keras = data_parallel(2)
    found = check(tmp_path, sending(torch, {("gradient", 1, 0): returned}), keras, **strategy())
    assert found.verdict == "diverged"
    assert "collectives: all_reduce: torch 0 bytes, keras 100" in found.differences
    assert "transfers: parameter 0 -> 1: torch 120 bytes, keras 0" in found.differences
    assert aspects(found) == ["parameters"]


def test_a_side_that_does_not_reduce_at_all_is_not_declared(tmp_path: Path) -> None:
    torch, keras = data_parallel(2)
    found = check(tmp_path, torch, replace(keras, collectives={}), **strategy())
    assert found.verdict == "diverged"
    assert "transfers: gradient 1 -> 0: torch 100 bytes, keras 0" in found.differences


# What is declared: DTensor on every rank against slices under tf.device

REDUCED = 100  # bytes: the parts of the pair's output, and of its input's gradient


def tensor_parallel(devices: int, parts: int | None = None, block: str = "") -> tuple[Layout, Layout]:
    """A pair of split layers before a norm. `parts`: on so many devices, where the layers are too narrow for all."""
    everywhere, split = list(range(devices)), list(range(parts or devices))
    pair = dict.fromkeys((f"{block}linear1.weight", f"{block}linear1.bias", f"{block}linear2.weight"), split)
    rest = (f"{block}linear2.bias", f"{block}norm.weight")
    slots = {f"{name}.momentum": on for name, on in pair.items()}
    others = tuple(f"{name}.momentum" for name in rest)
    modules = (f"{block}linear1", f"{block}relu", f"{block}linear2")
    # The input and its gradient have 40 bytes, the part of the output and its gradient 60.
    ways = [("activation", 0, 1, 40), ("activation", 1, 0, 60), ("gradient", 0, 1, 60), ("gradient", 1, 0, 40)]
    transfers = [
        copied(what, source * device, target * device, size)
        for device in split[1:]
        for what, source, target, size in ways
    ]
    common = {"devices": ["CPU"] * devices, "replicas": 1}
    # A rank without a part runs the program all the same.
    ranks = dict.fromkeys((*modules, f"{block}norm"), everywhere)
    devices_of = {**dict.fromkeys(modules, split), f"{block}norm": [0]}
    return (
        Layout(
            parameters={**pair, **dict.fromkeys(rest, everywhere)},
            optimizer_state={**slots, **dict.fromkeys(others, everywhere)},
            compute=ranks,
            backward=ranks,
            collectives={"all_reduce": REDUCED} if devices > 1 else {},
            **common,
        ),
        Layout(
            parameters={**pair, **{name: [0] for name in rest}},
            optimizer_state={**slots, **{name: [0] for name in others}},
            compute=devices_of,
            backward=devices_of,
            transfers=total(transfers),
            **common,
        ),
    )


def slices(devices: int) -> dict[str, Any]:
    return {"strategy": "tensor_parallel", "devices": devices}


BOTH = ["parameters, compute", "collectives"]
NARROW = ["parameters, compute", "compute", "collectives"]
BLOCKS = ["", "encoder.layers.0."]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_tensor_parallel_is_declared(devices: int, block: str, tmp_path: Path) -> None:
    found = check(tmp_path, *tensor_parallel(devices, block=block), **slices(devices))
    assert (found.verdict, found.differences) == ("match", [])
    assert aspects(found) == BOTH
    assert all("tensor.parallel.html" in line and "tensorflow.org" in line for line in found.declared)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("parts", [2, 3])
def test_layers_too_narrow_for_all_devices_are_declared_too(parts: int, block: str, tmp_path: Path) -> None:
    found = check(tmp_path, *tensor_parallel(4, parts, block), **slices(4))
    assert (found.verdict, found.differences, aspects(found)) == ("match", [], NARROW)


def test_a_pair_whose_input_needs_no_gradient_is_declared(tmp_path: Path) -> None:
    """The first layers of a model: the sum of the outputs is the only one."""
    torch, keras = tensor_parallel(3)
    first = sending(keras, {("gradient", device, 0): 0 for device in (1, 2)})
    found = check(tmp_path, replace(torch, collectives={"all_reduce": 60}), first, **slices(3))
    assert (found.verdict, found.differences, aspects(found)) == ("match", [], BOTH)


@pytest.mark.parametrize("strategy", ["branch_parallel", "ddp", "round_robin", "send_recv"])
def test_tensor_parallel_s_layouts_are_not_declared_for_another_strategy(strategy: str, tmp_path: Path) -> None:
    model = {"kind": "residual_block"} if strategy == "branch_parallel" else {}
    found = check(tmp_path, *tensor_parallel(2), strategy=strategy, devices=2, model=model)
    assert (found.verdict, found.declared) == ("diverged", [])
    assert {line.partition(":")[0] for line in found.differences} == {
        "parameters", "optimizer_state", "compute", "backward", "transfers", "collectives",
    }  # fmt: skip


def test_data_parallel_s_layouts_are_not_declared_for_tensor_parallel(tmp_path: Path) -> None:
    torch, keras = data_parallel(2)
    found = check(tmp_path, torch, keras, **slices(2))
    assert found.verdict == "diverged"
    assert not set(BOTH) & set(aspects(found))
    for aspect in ("parameters", "optimizer_state"):
        said = [line for line in found.differences if line.startswith(f"{aspect}: ")]
        assert said == [f"{aspect}: {name}: torch on 0, keras on 0, 1" for name in sorted(getattr(torch, aspect))]
    assert [line for line in found.differences if "bytes" in line] == told(0, torch.transfers)


def test_tensor_parallel_on_one_device_has_nothing_to_declare(tmp_path: Path) -> None:
    found = check(tmp_path, *tensor_parallel(1), **slices(1))
    assert (found.verdict, found.declared) == ("match", [])


@pytest.mark.parametrize("backend", SIDES)
def test_two_traces_of_one_backend_have_no_tensor_parallel_declared(backend: str, tmp_path: Path) -> None:
    layouts = tensor_parallel(2)
    traces = [trace(tmp_path / str(i), backend, layout, **slices(2)) for i, layout in enumerate(layouts)]
    found = compare_layouts(("reference", "candidate"), *traces)
    assert (found.verdict, found.declared) == ("diverged", [])


def test_the_sides_of_tensor_parallel_are_not_exchanged(tmp_path: Path) -> None:
    """What PyTorch is declared to do is no excuse for Keras."""
    torch, keras = tensor_parallel(2)
    found = check(tmp_path, keras, torch, **slices(2))
    assert (found.verdict, found.declared) == ("diverged", [])
    assert "compute: norm: torch on 0, keras on 0, 1" in found.differences
    assert "collectives: all_reduce: torch 0 bytes, keras 100" in found.differences


EVERY = "torch on 0, 1, 2"
PLACES: list[tuple[int, str, str, list[int] | None, str]] = [
    # A parameter that no device splits, elsewhere than on device 0 of Keras and on every rank of PyTorch.
    (1, "parameters", "linear2.bias", [1], f"{EVERY}, keras on 1"),
    (1, "parameters", "linear2.bias", [0, 1], f"{EVERY}, keras on 0, 1"),
    (1, "parameters", "linear2.bias", None, f"{EVERY}, keras nowhere"),
    (0, "parameters", "linear2.bias", [1], "torch on 1, keras on 0"),
    (0, "parameters", "linear2.bias", [0, 1], "torch on 0, 1, keras on 0"),
    (0, "parameters", "linear2.bias", None, "torch nowhere, keras on 0"),
    (1, "optimizer_state", "linear2.bias.momentum", [2], f"{EVERY}, keras on 2"),
    (0, "optimizer_state", "linear2.bias.momentum", [0, 2], "torch on 0, 2, keras on 0"),
    (0, "optimizer_state", "more", [0, 1, 2], f"{EVERY}, keras nowhere"),
    (1, "optimizer_state", "more", [0], "torch nowhere, keras on 0"),
    (1, "compute", "norm", [2], f"{EVERY}, keras on 2"),
    (1, "compute", "norm", [0, 2], f"{EVERY}, keras on 0, 2"),
    (1, "compute", "norm", None, f"{EVERY}, keras nowhere"),
    (0, "compute", "norm", [0, 2], "torch on 0, 2, keras on 0"),
    (0, "backward", "norm", [1], "torch on 1, keras on 0"),
    (1, "backward", "norm", [1], f"{EVERY}, keras on 1"),
    # A part of a split layer on other devices than its own.
    (1, "parameters", "linear1.weight", [0, 1], f"{EVERY}, keras on 0, 1"),
    (1, "parameters", "linear1.weight", [1], f"{EVERY}, keras on 1"),
    (0, "parameters", "linear1.bias", [0], "torch on 0, keras on 0, 1, 2"),
    (0, "parameters", "linear2.weight", [1, 2], "torch on 1, 2, keras on 0, 1, 2"),
    # All of a split layer on device 0, as what is not split.
    (1, "parameters", "linear1.weight", [0], f"{EVERY}, keras on 0"),
    (1, "parameters", "linear1.bias", [0], f"{EVERY}, keras on 0"),
    (1, "parameters", "linear2.weight", [0], f"{EVERY}, keras on 0"),
    (1, "optimizer_state", "linear2.weight.momentum", [0], f"{EVERY}, keras on 0"),
    (1, "compute", "linear1", [0], f"{EVERY}, keras on 0"),
    (1, "compute", "relu", [0], f"{EVERY}, keras on 0"),
    (1, "backward", "linear2", [0], f"{EVERY}, keras on 0"),
    (1, "compute", "linear2", [0, 1], f"{EVERY}, keras on 0, 1"),
    (0, "compute", "linear2", [0, 1], "torch on 0, 1, keras on 0, 1, 2"),
    (0, "backward", "linear1", [0], "torch on 0, keras on 0, 1, 2"),
    (1, "backward", "linear1", [1, 2], f"{EVERY}, keras on 1, 2"),
]


def elsewhere(side: int, aspect: str, name: str, where: list[int] | None, both: tuple[Layout, Layout]) -> list[Layout]:
    """Both layouts with one entry of one side elsewhere; None: nowhere."""
    layouts = list(both)
    places = {**getattr(layouts[side], aspect), name: where}
    layouts[side] = replace(layouts[side], **{aspect: {key: on for key, on in places.items() if on is not None}})
    return layouts


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(("side", "aspect", "name", "where", "said"), PLACES)
def test_a_place_that_tensor_parallel_does_not_declare_stays_a_difference(
    side: int, aspect: str, name: str, where: list[int] | None, said: str, block: str, tmp_path: Path
) -> None:
    name = f"{block}{name}"
    layouts = elsewhere(side, aspect, name, where, tensor_parallel(3, block=block))
    found = check(tmp_path, *layouts, **slices(3))
    only_it_differs(found, f"{aspect}: {name}: {said}", BOTH, unless=(name, side) == (f"{block}linear1.weight", 1))


def only_it_differs(found: LayoutCheck, said: str, declared: list[str], unless: bool) -> None:
    """`unless`: the devices that hold Keras's parts differ, for which its copies are declared: these stay then."""
    assert (found.verdict, *places(found)) == ("diverged", said)
    assert unless or (found.differences, aspects(found)) == ([said], declared)


def places(found: LayoutCheck) -> list[str]:
    """The differences that are not of flows."""
    return [line for line in found.differences if not line.startswith(("transfers", "collectives"))]


@pytest.mark.parametrize(("where", "said"), [([0], "0"), ([1, 2], "1, 2")])
def test_a_weight_that_ranks_lack_and_devices_hold_is_named(where: list[int], said: str, tmp_path: Path) -> None:
    """Ranks without a part are declared where the devices have none either."""
    layouts = elsewhere(0, "parameters", "linear1.weight", where, tensor_parallel(3))
    found = check(tmp_path, *layouts, **slices(3))
    assert found.verdict == "diverged"
    assert f"parameters: linear1.weight: torch on {said}, keras on 0, 1, 2" in found.differences


ALL = "torch on 0, 1, 2, 3"


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    ("side", "aspect", "name", "where", "said"),
    [
        (0, "compute", "linear2", [0], "torch on 0, keras on 0, 1"),  # rank 1 has a part
        (0, "compute", "linear1", [1, 2, 3], "torch on 1, 2, 3, keras on 0, 1"),
        (0, "backward", "relu", [0, 2, 3], "torch on 0, 2, 3, keras on 0, 1"),
        (0, "compute", "linear1", [2, 3], "torch on 2, 3, keras on 0, 1"),
        (1, "compute", "linear1", [0], f"{ALL}, keras on 0"),
        (1, "compute", "relu", [0], f"{ALL}, keras on 0"),
        (1, "backward", "linear2", [0, 1, 2], f"{ALL}, keras on 0, 1, 2"),
        # A module that is not split, and what is held, of which no rank without a part has any.
        (0, "compute", "norm", [0, 1], "torch on 0, 1, keras on 0"),
        (1, "compute", "norm", [0, 1], f"{ALL}, keras on 0, 1"),
        (1, "parameters", "linear1.weight", [0, 1, 2], "torch on 0, 1, keras on 0, 1, 2"),
        (0, "parameters", "linear2.weight", [0, 1, 2, 3], f"{ALL}, keras on 0, 1"),
        (0, "parameters", "linear1.bias", [0, 1, 2, 3], f"{ALL}, keras on 0, 1"),
        (0, "optimizer_state", "linear1.weight.momentum", [0, 1, 2, 3], f"{ALL}, keras on 0, 1"),
    ],
)
def test_another_place_than_an_empty_part_s_stays_a_difference(
    side: int, aspect: str, name: str, where: list[int], said: str, block: str, tmp_path: Path
) -> None:
    name = f"{block}{name}"
    found = check(tmp_path, *elsewhere(side, aspect, name, where, tensor_parallel(4, 2, block)), **slices(4))
    only_it_differs(found, f"{aspect}: {name}: {said}", NARROW, unless=(name, side) == (f"{block}linear1.weight", 1))


def test_an_empty_part_is_one_of_its_own_block(tmp_path: Path) -> None:
    """Beside a pair too narrow for all devices one that is wide enough."""
    layouts = tensor_parallel(4, 2, "narrow.")
    held, ran = {"wide.linear1.weight": [0, 1, 2, 3]}, {"wide.linear1": [0, 1, 2, 3]}
    for side in (0, 1):
        layouts = spoilt(side, layouts, parameters=held, compute=ran, backward=ran)
    found = check(tmp_path / "right", *layouts, **slices(4))
    assert places(found) == []
    found = check(tmp_path / "wrong", *spoilt(1, layouts, compute={"wide.linear1": [0, 1]}), **slices(4))
    assert places(found) == [f"compute: wide.linear1: {ALL}, keras on 0, 1"]


@pytest.mark.parametrize(
    ("side", "fields", "said"),
    [
        (1, {"transfers": [copied("activation", 1, 2, 4)]}, "transfers: activation 1 -> 2: torch 0 bytes, keras 4"),
        (1, {"transfers": [copied("gradient", 2, 1, 4)]}, "transfers: gradient 2 -> 1: torch 0 bytes, keras 4"),
        (0, {"collectives": {"all_gather": 4}}, "collectives: all_gather: torch 4 bytes, keras 0"),
        (1, {"collectives": {"broadcast": 4}}, "collectives: broadcast: torch 0 bytes, keras 4"),
        (1, {"collectives": {"all_reduce": 100}}, "collectives: all_reduce: torch 0 bytes, keras 100"),
        (0, {"replicas": 3}, "replicas: torch 3, keras 1"),
    ],
)
def test_a_flow_that_tensor_parallel_does_not_declare_stays_a_difference(
    side: int, fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    found = check(tmp_path, *spoilt(side, tensor_parallel(3), **fields), **slices(3))
    assert (found.verdict, found.differences, aspects(found)) == ("diverged", [said], BOTH)


def test_a_device_that_is_given_nothing_and_sends_something_is_named(tmp_path: Path) -> None:
    torch, keras = tensor_parallel(3, 2)
    found = check(tmp_path, torch, sending(keras, {("activation", 2, 0): 60}), **slices(3))
    assert found.differences == ["transfers: activation 2 -> 0: torch 0 bytes, keras 60"]
    assert aspects(found) == NARROW


@pytest.mark.parametrize(
    ("first", "second"),
    [(59, 60), (60, 61), (61, 61), (0, 60), (0, 0), (20, 100), (160, 160), (60, 0)],
)
def test_parts_that_are_not_those_of_the_sum_are_not_declared(first: int, second: int, tmp_path: Path) -> None:
    """All is told, and not what is left of it: what each of devices 1 and 2 sends forward, in the place of 60 bytes."""
    torch, keras = tensor_parallel(3)
    keras = sending(keras, {("activation", 1, 0): first, ("activation", 2, 0): second})
    found = check(tmp_path, torch, keras, **slices(3))
    assert (found.verdict, aspects(found)) == ("diverged", BOTH[:1])
    assert found.differences == told(1, keras.transfers)


WAYS = [("activation", 0), ("activation", 1), ("gradient", 0), ("gradient", 1)]


def silent(device: int) -> dict[tuple[str, int, int], int]:
    """No copies between device 0 and this one."""
    return {(what, back * device, (1 - back) * device): 0 for what, back in WAYS}


@pytest.mark.parametrize(
    "sizes",
    [
        # Device 0 sends nothing.
        {("activation", 0, device): 0 for device in (1, 2, 3)},
        {("activation", 0, device): 0 for device in (1, 2, 3)} | {("gradient", 0, device): 0 for device in (1, 2, 3)},
        {("gradient", 0, device): 0 for device in (1, 2, 3)},
        {("gradient", 0, 2): 0},
        # A gap.
        silent(1),
        silent(2),
        silent(1) | silent(2),
        {("activation", 0, 1): 0},
        {("activation", 0, 2): 0},
        # As much as it should be, but not on each way.
        {("activation", 0, 1): 30, ("activation", 0, 2): 50},
        {("activation", 1, 0): 50, ("gradient", 1, 0): 50},
        {("activation", device, 0): 40 for device in (1, 2, 3)} | {("gradient", device, 0): 60 for device in (1, 2, 3)},
        {("activation", 1, 0): 59, ("gradient", 0, 1): 59, ("activation", 2, 0): 61, ("gradient", 0, 2): 61},
        {("gradient", 1, 0): 30, ("gradient", 2, 0): 50},
        {("gradient", 0, 1): 50, ("gradient", 0, 2): 70},
        # What a device gives into the sum is not the sum's size.
        {("gradient", 3, 0): 0},
        {(what, 0, device): 60 for what in ("activation", "gradient") for device in (1, 2, 3)}
        | {("activation", device, 0): 60 for device in (1, 2, 3)}
        | {("gradient", device, 0): 60 for device in (1, 2, 3)},
    ],
)
def test_other_copies_than_those_of_the_sum_are_all_told(
    sizes: dict[tuple[str, int, int], int], tmp_path: Path
) -> None:
    torch, keras = tensor_parallel(4)
    keras = sending(keras, sizes)
    found = check(tmp_path, torch, keras, **slices(4))
    assert (found.verdict, aspects(found)) == ("diverged", BOTH[:1])
    assert found.differences == told(1, keras.transfers)


def test_a_sum_of_nothing_is_not_declared(tmp_path: Path) -> None:
    torch, keras = tensor_parallel(3)
    found = check(tmp_path, replace(torch, collectives={}), keras, **slices(3))
    assert (found.verdict, aspects(found)) == ("diverged", BOTH[:1])
    assert [line.partition(":")[0] for line in found.differences] == ["transfers"] * len(keras.transfers)
    found = check(tmp_path, torch, replace(keras, transfers=[]), **slices(3))
    assert (found.verdict, aspects(found)) == ("diverged", BOTH[:1])
    assert found.differences == ["collectives: all_reduce: torch 100 bytes, keras 0"]


def test_ranks_that_copy_are_not_declared(tmp_path: Path) -> None:
    """Ranks of PyTorch that also send each other tensors do something else."""
    torch, keras = tensor_parallel(3)
    found = check(tmp_path, replace(torch, transfers=[copied("gradient", 1, 2, 4)]), keras, **slices(3))
    assert (found.verdict, aspects(found)) == ("diverged", BOTH[:1])
    assert "transfers: gradient 1 -> 2: torch 4 bytes, keras 0" in found.differences
    assert "collectives: all_reduce: torch 100 bytes, keras 0" in found.differences


def test_where_only_the_sums_differ_only_they_are_declared(tmp_path: Path) -> None:
    """Ranks that hold nothing but the split layers."""
    torch, keras = tensor_parallel(2)
    places = {aspect: getattr(keras, aspect) for aspect in ("parameters", "optimizer_state", "compute", "backward")}
    found = check(tmp_path, replace(torch, **places), keras, **slices(2))
    assert (found.verdict, found.differences, aspects(found)) == ("match", [], BOTH[1:])


# What is declared: a copy for each layer against one for all on the device


def projections(devices: int, encoders: int, decoders: int) -> tuple[Layout, Layout]:
    """Query, key and value on devices 0, 1 and 2, the rest on device 0; 10 bytes each."""
    away = range(1, min(devices, 3))
    each = {"attention.key.weight": [1 % devices], "attention.query.weight": [0]}
    modules = {"attention.key": [1 % devices], "attention.query": [0]}
    common = {"devices": ["CPU"] * devices, "parameters": each, "compute": modules, "backward": modules}

    def layout(dealt_out: int) -> Layout:
        back = encoders + 2 * decoders
        ways = [("activation", 0, 1, dealt_out), ("activation", 1, 0, back), ("gradient", 0, 1, back)]
        ways += [("gradient", 1, 0, back)]
        transfers = [copied(what, here * d, there * d, 10 * n) for d in away for what, here, there, n in ways]
        return Layout(transfers=total(transfers), **common)

    return layout(encoders + 2 * decoders), layout(encoders + decoders + 1)


def branches(devices: int, encoders: int, decoders: int, **model: Any) -> dict[str, Any]:
    kind = {"kind": "transformer", "encoder_layers": encoders, "decoder_layers": decoders}
    return {"strategy": "branch_parallel", "devices": devices, "model": model or kind}


@pytest.mark.parametrize(("encoders", "decoders"), [(2, 2), (1, 3), (3, 2)])
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_branch_parallel_is_declared(devices: int, encoders: int, decoders: int, tmp_path: Path) -> None:
    layouts = projections(devices, encoders, decoders)
    found = check(tmp_path, *layouts, **branches(devices, encoders, decoders))
    assert (found.verdict, found.differences, aspects(found)) == ("match", [], ["transfers"])


def test_one_decoder_layer_takes_the_tensor_once_anyway(tmp_path: Path) -> None:
    layouts = projections(2, 2, 1)
    assert layouts[0] == layouts[1]
    found = check(tmp_path, *layouts, **branches(2, 2, 1))
    assert (found.verdict, found.declared) == ("match", [])


OUT_60_50 = "transfers: activation 0 -> 1: torch 60 bytes, keras 50"


@pytest.mark.parametrize(
    "changes",
    [
        branches(2, 2, 3),  # of another model the copies are other ones
        branches(2, 3, 2),
        branches(2, 2, 2, kind="residual_block"),
        {**branches(2, 2, 2), "strategy": "round_robin"},
        {**branches(2, 2, 2), "strategy": "tensor_parallel"},
    ],
)
def test_branch_parallel_s_copies_are_not_declared_elsewhere(changes: dict[str, Any], tmp_path: Path) -> None:
    found = check(tmp_path, *projections(2, 2, 2), **changes)
    assert (found.verdict, found.differences, found.declared) == ("diverged", [OUT_60_50], [])


def test_the_sides_of_branch_parallel_are_not_exchanged(tmp_path: Path) -> None:
    torch, keras = projections(2, 2, 2)
    found = check(tmp_path, keras, torch, **branches(2, 2, 2))
    said = "transfers: activation 0 -> 1: torch 50 bytes, keras 60"
    assert (found.verdict, found.differences, found.declared) == ("diverged", [said], [])


@pytest.mark.parametrize(
    ("what", "source", "target", "size"),
    [
        ("activation", 0, 1, 40),
        ("activation", 0, 1, 49),
        ("activation", 0, 1, 51),
        ("activation", 1, 0, 50),  # as the copies of what is dealt out, but on its way back
        ("activation", 1, 0, 0),
        ("gradient", 0, 1, 50),
        ("gradient", 1, 0, 50),
    ],
)
def test_other_copies_than_those_that_branch_parallel_declares_are_differences(
    what: str, source: int, target: int, size: int, tmp_path: Path
) -> None:
    torch, keras = projections(3, 2, 2)
    kept = [one for one in keras.transfers if (one.what, one.source, one.target) != (what, source, target)]
    added = [copied(what, source, target, size)] if size else []
    found = check(tmp_path, torch, replace(keras, transfers=total([*kept, *added])), **branches(3, 2, 2))
    said = f"transfers: {what} {source} -> {target}: torch 60 bytes, keras {size}"
    assert (found.verdict, found.differences) == ("diverged", [said])
    assert aspects(found) == ["transfers"]  # what device 2 is dealt out is as declared


def test_every_declaration_has_a_reason_and_a_source() -> None:
    assert DECLARED
    assert all(rule.strategies and rule.reason and rule.source for rule in DECLARED)


def test_the_layouts_themselves_are_shown_as_they_are(tmp_path: Path) -> None:
    torch, keras = data_parallel(2)
    assert check(tmp_path, torch, keras, **strategy()).sides == {"torch": torch, "keras": keras}


# Half precision


@pytest.mark.parametrize(
    ("precision", "size", "verdict"),
    [
        ("bfloat16", 8, "match"),
        ("bfloat16", 12, "match"),
        ("bfloat16", 7, "diverged"),
        ("bfloat16", 17, "diverged"),
        ("float32", 8, "diverged"),
    ],
)
def test_up_to_half_fewer_bytes_are_declared_at_half_precision_alone(
    precision: str, size: int, verdict: str, tmp_path: Path
) -> None:
    """A Keras layer casts before the copy, torch.autocast behind it: what is copied may be twice as wide."""
    block = {"model": {"kind": "residual_block"}, "data": {"source": "synthetic"}, "loss": {"target": "zeros"}}
    case = {**block, "strategy": "branch_parallel", "precision": precision}
    one, other = (replace(WHOLE, replicas=1, transfers=[copied("activation", 0, 1, bytes_)]) for bytes_ in (16, size))
    assert check(tmp_path, one, other, **case).verdict == verdict
