"""What is declared of device layouts: DTensor on every rank against slices under tf.device."""

from pathlib import Path
from typing import Any

import pytest
from layouts import aspects, check, copied, sending
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
