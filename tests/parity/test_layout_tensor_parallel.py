"""What is declared of device layouts: DTensor on every rank against slices under tf.device."""

from pathlib import Path
from typing import Any

import pytest
from layouts import aspects, check, copied, sending, spoilt, told
from msgspec.structs import replace

from parity.results import LayoutCheck
from parity.trace.layout import Layout, total

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


def test_tensor_parallel_on_one_device_has_nothing_to_declare(tmp_path: Path) -> None:
    found = check(tmp_path, *tensor_parallel(1), **slices(1))
    assert (found.verdict, found.declared) == ("match", [])


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
    (1, "parameters", "linear2.bias", [0, 1], f"{EVERY}, keras on 0, 1"),
    (0, "parameters", "linear2.bias", [0, 1], "torch on 0, 1, keras on 0"),
    (0, "parameters", "linear2.bias", None, "torch nowhere, keras on 0"),
    (1, "optimizer_state", "linear2.bias.momentum", [2], f"{EVERY}, keras on 2"),
    (0, "optimizer_state", "more", [0, 1, 2], f"{EVERY}, keras nowhere"),
    (1, "compute", "norm", [0, 2], f"{EVERY}, keras on 0, 2"),
    (0, "compute", "norm", [0, 2], "torch on 0, 2, keras on 0"),
    (0, "backward", "norm", [1], "torch on 1, keras on 0"),
    # A part of a split layer on other devices than its own.
    (1, "parameters", "linear1.weight", [0, 1], f"{EVERY}, keras on 0, 1"),
    (0, "parameters", "linear1.bias", [0], "torch on 0, keras on 0, 1, 2"),
    # All of a split layer on device 0, as what is not split.
    (1, "parameters", "linear1.weight", [0], f"{EVERY}, keras on 0"),
    (1, "parameters", "linear2.weight", [0], f"{EVERY}, keras on 0"),
    (1, "optimizer_state", "linear2.weight.momentum", [0], f"{EVERY}, keras on 0"),
    (1, "compute", "relu", [0], f"{EVERY}, keras on 0"),
    (1, "compute", "linear2", [0, 1], f"{EVERY}, keras on 0, 1"),
    (0, "backward", "linear1", [0], "torch on 0, keras on 0, 1, 2"),
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


ALL = "torch on 0, 1, 2, 3"


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    ("side", "aspect", "name", "where", "said"),
    [
        (0, "compute", "linear2", [0], "torch on 0, keras on 0, 1"),  # rank 1 has a part
        (0, "backward", "relu", [0, 2, 3], "torch on 0, 2, 3, keras on 0, 1"),
        (1, "compute", "linear1", [0], f"{ALL}, keras on 0"),
        (1, "backward", "linear2", [0, 1, 2], f"{ALL}, keras on 0, 1, 2"),
        # A module that is not split, and what is held, of which no rank without a part has any.
        (0, "compute", "norm", [0, 1], "torch on 0, 1, keras on 0"),
        (1, "parameters", "linear1.weight", [0, 1, 2], "torch on 0, 1, keras on 0, 1, 2"),
        (0, "parameters", "linear2.weight", [0, 1, 2, 3], f"{ALL}, keras on 0, 1"),
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


WAYS = [("activation", 0), ("activation", 1), ("gradient", 0), ("gradient", 1)]


def silent(device: int) -> dict[tuple[str, int, int], int]:
    """No copies between device 0 and this one."""
    return {(what, back * device, (1 - back) * device): 0 for what, back in WAYS}


@pytest.mark.parametrize(
    "sizes",
    [
        # Device 0 sends nothing.
        {("activation", 0, device): 0 for device in (1, 2, 3)},
        {("gradient", 0, 2): 0},
        # A gap.
        silent(1),
        {("activation", 0, 1): 0},
        # As much as it should be, but not on each way.
        {("activation", 0, 1): 30, ("activation", 0, 2): 50},
        {("activation", 1, 0): 50, ("gradient", 1, 0): 50},
        {("activation", device, 0): 40 for device in (1, 2, 3)} | {("gradient", device, 0): 60 for device in (1, 2, 3)},
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
