"""What is declared of device layouts, strategy by strategy, and that nothing else passes for it."""

from pathlib import Path
from typing import Any

import pytest
from layouts import aspects, check, copied, data_parallel, sending, spoilt
from msgspec.structs import replace

from parity.results import LayoutCheck
from parity.trace.layout import Layout, total


def strategy(devices: int = 2) -> dict[str, Any]:
    return {"strategy": "data_parallel", "devices": devices}


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_data_parallel_is_declared(devices: int, tmp_path: Path) -> None:
    found = check(tmp_path, *data_parallel(devices), **strategy(devices))
    assert (found.verdict, found.differences) == ("match", [])
    assert aspects(found) == ["parameters", "transfers"]
    assert all("DataParallel" in line and "tensorflow.org" in line for line in found.declared)


def test_one_device_has_nothing_to_declare(tmp_path: Path) -> None:
    torch, keras = data_parallel(1)
    found = check(tmp_path, torch, replace(keras, collectives={}), **strategy(1))
    assert (found.verdict, found.declared) == ("match", [])


@pytest.mark.parametrize(
    ("side", "fields", "said"),
    [
        (1, {"parameters": {"linear2.weight": [1]}}, ["parameters: linear2.weight: torch on 0, keras on 1"]),
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
        (1, {"transfers": [copied("activation", 0, 1, 4)]}, ["transfers: activation 0 -> 1: torch 0 bytes, keras 4"]),
        (0, {"transfers": [copied("input", 1, 2, 4)]}, ["transfers: input 1 -> 2: torch 4 bytes, keras 0"]),
        (0, {"transfers": [copied("parameter", 1, 0, 4)]}, ["transfers: parameter 1 -> 0: torch 4 bytes, keras 0"]),
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


def test_the_sides_of_branch_parallel_are_not_exchanged(tmp_path: Path) -> None:
    torch, keras = projections(2, 2, 2)
    found = check(tmp_path, keras, torch, **branches(2, 2, 2))
    said = "transfers: activation 0 -> 1: torch 50 bytes, keras 60"
    assert (found.verdict, found.differences, found.declared) == ("diverged", [said], [])


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


def test_a_device_that_is_given_nothing_and_sends_something_is_named(tmp_path: Path) -> None:
    torch, keras = tensor_parallel(3, 2)
    found = check(tmp_path, torch, sending(keras, {("activation", 2, 0): 60}), **slices(3))
    assert found.differences == ["transfers: activation 2 -> 0: torch 0 bytes, keras 60"]
    assert aspects(found) == NARROW
