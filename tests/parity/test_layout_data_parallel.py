"""What is declared of device layouts: nn.DataParallel against MirroredStrategy."""

from pathlib import Path
from typing import Any

import pytest
from layouts import aspects, check, copied, data_parallel, sending, spoilt, told, trace
from msgspec.structs import replace

from parity.layout.compare import compare_layouts


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


@pytest.mark.parametrize(
    "sizes",
    [
        {("gradient", 1, 0): 50, ("gradient", 2, 0): 150},  # as much as it should be, but not of each device
        {("gradient", 1, 0): 200, ("gradient", 2, 0): 0},
        {("gradient", 1, 0): 99},
        {("output", 1, 0): 21},
        {("gradient", 0, 2): 0},
        {("gradient", 0, 1): 18, ("gradient", 0, 2): 20},  # of each other's outputs
        {("parameter", 0, 1): 0},
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


def test_the_layouts_themselves_are_shown_as_they_are(tmp_path: Path) -> None:
    torch, keras = data_parallel(2)
    assert check(tmp_path, torch, keras, **strategy()).sides == {"torch": torch, "keras": keras}
