"""What is declared of device layouts: nn.DataParallel against MirroredStrategy."""

from pathlib import Path
from typing import Any

import pytest
from layouts import aspects, check, copied, data_parallel, spoilt
from msgspec.structs import replace


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
