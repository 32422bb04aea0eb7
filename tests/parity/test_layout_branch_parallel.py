"""What is declared of device layouts: a copy for each layer against one for all on the device."""

from pathlib import Path
from typing import Any

import pytest
from layouts import aspects, check, copied
from msgspec.structs import replace

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
