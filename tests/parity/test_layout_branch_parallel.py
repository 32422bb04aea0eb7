"""What is declared of device layouts: a copy for each layer against one for all on the device."""

from pathlib import Path
from typing import Any

import pytest
from layouts import aspects, check, copied

from parity.trace.layout import Layout, total


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
