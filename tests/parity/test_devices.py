"""What devices there are, and what a case needs of them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parity.config import cases, schema
from parity.config.devices import Devices, obstacle
from parity.core.errors import MissingError
from parity.runtime.resources import available, missing

STACK, BLOCK = "linear_stack/single", "simple_block/single"


def case(name: str = STACK, **changes: Any) -> schema.Case:
    return cases.resolve(name, changes)


EVEN = "hybrid trains replicas of 2 stages each: it needs an even number of devices, at least 4, not {}"
UNEQUAL = (
    "torch.distributed.pipelining needs micro-batches of equal size: a batch of {} cannot be cut into {} of them in "
    "every replica"
)
FEW = "the model has only {}, too few for {} stages"
PIPELINE = {"strategy": "pipeline"}
OBSTACLES: list[tuple[str, dict[str, Any], str]] = [
    *[(STACK, {"strategy": "hybrid", "devices": n}, EVEN.format(n)) for n in (1, 2, 3, 5, 7)],
    *[(STACK, {"strategy": "hybrid", "devices": n}, "") for n in (4, 6, 8)],
    ("two_linear/single", {"strategy": "hybrid", "devices": 8}, ""),
    (STACK, {"strategy": "hybrid", "devices": 4, "model": {"layers": 1}}, FEW.format("1 consecutive block", 2)),
    *[(STACK, {"strategy": name, "devices": 6}, "") for name in ("send_recv", "pipeline")],
    *[
        (STACK, {"strategy": name, "devices": 7}, FEW.format("6 consecutive blocks", 7))
        for name in ("send_recv", "pipeline")
    ],
    *[(STACK, {"strategy": name, "devices": 8}, "") for name in ("single", "round_robin", "ddp", "all_reduce")],
    *[(STACK, {"strategy": name, "stage_blocks": (5, 1)}, "") for name in ("send_recv", "pipeline")],
    (STACK, {"strategy": "hybrid", "devices": 4, "stage_blocks": (1, 5)}, ""),
    (STACK, {"strategy": "send_recv", "stage_blocks": (5, 2)},
        "stage_blocks = [5, 2] has 7 blocks in 2 stages, but the model has 6, for 2 stages"),
    (STACK, {"strategy": "pipeline", "devices": 3, "stage_blocks": (3, 3)},
        "stage_blocks = [3, 3] has 6 blocks in 2 stages, but the model has 6, for 3 stages"),
    (BLOCK, {"strategy": "tensor_parallel", "devices": 8}, ""),
    ("residual_block/single", {"strategy": "branch_parallel", "devices": 8}, ""),
    (STACK, {"strategy": "ddp", "devices": 4, "data": {"batch": 4}}, ""),
    (STACK, {"strategy": "ddp", "devices": 4, "data": {"batch": 3}},
        "a batch of 3 samples leaves one of 4 replicas with 0, but each replica needs at least 1"),
    (STACK, {"strategy": "ddp", "devices": 4, "data": {"batch": 9}}, ""),
    (STACK, {"strategy": "data_parallel", "devices": 4, "data": {"batch": 9}},
        "a batch of 9 samples leaves one of 4 replicas with 0, but each replica needs at least 1"),
    (STACK, {"strategy": "ddp", "devices": 3, "data": {"batch": 9}, "accumulate": 3}, ""),
    (STACK, {"strategy": "ddp", "devices": 3, "data": {"batch": 8}, "accumulate": 3},
        "a batch of 8 samples leaves one of 3 replicas with 2, but each replica needs at least 3"),
    (STACK, {**PIPELINE, "data": {"batch": 32}, "accumulate": 4}, ""),
    (STACK, {**PIPELINE, "data": {"batch": 33}, "accumulate": 4}, UNEQUAL.format(33, 4)),
    (STACK, {"strategy": "send_recv", "data": {"batch": 33}, "accumulate": 4}, ""),
    (STACK, {"strategy": "hybrid", "devices": 4, "data": {"batch": 32}, "accumulate": 2}, ""),
    (STACK, {"strategy": "hybrid", "devices": 4, "data": {"batch": 34}, "accumulate": 2}, UNEQUAL.format(34, 2)),
    (STACK, {"strategy": "hybrid", "devices": 4, "data": {"batch": 33}, "accumulate": 2}, UNEQUAL.format(33, 2)),
    *[
        (STACK, {"strategy": "data_parallel", "devices": n, "data": {"batch": batch}, "fit": fit}, "")
        for n, batch, fit in ((4, 32, True), (3, 33, True), (3, 32, False))
    ],
    (STACK, {"strategy": "single", "devices": 3, "data": {"batch": 32}, "fit": True}, ""),
    (STACK, {"strategy": "data_parallel", "devices": 3, "data": {"batch": 32}, "fit": True},
        "fit under MirroredStrategy needs equal parts: a batch of 32 cannot be divided equally among 3 replicas"),
    (STACK, {**PIPELINE, "pipeline": "1f1b", "devices": 4, "accumulate": 4}, ""),
    (STACK, {**PIPELINE, "pipeline": "gpipe", "devices": 4, "accumulate": 2}, ""),
    (STACK, {**PIPELINE, "pipeline": "1f1b", "devices": 4, "accumulate": 2},
        "1F1B needs at least as many micro-batches as stages, not 2 for 4 stages"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "reason"), OBSTACLES)
def test_the_obstacles(name: str, changes: dict[str, Any], reason: str) -> None:
    assert obstacle(case(name, **changes)) == reason


# The devices of this machine


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Makes programs in a folder that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def make(name: str, code: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\n{code}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.mark.parametrize(
    ("torch", "keras", "found"),
    [
        ("print(4)", "print(4)", Devices("gpu", 4)),
        ("print(4)", "print('a warning'); print(2)", Devices("gpu", 2)),
        ("print(0)", "print(2)", Devices("cpu", 2)),
        ("print(2)", "raise ImportError", Devices("cpu", 2)),
    ],
)
def test_the_gpus_are_those_that_both_backends_see(torch: str, keras: str, found: Devices, programs: Any) -> None:
    pythons = {"torch": programs("torch-python", torch), "keras": programs("keras-python", keras)}
    assert available(pythons) == Devices("cpu", 2)  # without the driver's tool nobody is asked
    programs("nvidia-smi", "")
    assert available(pythons) == found
    assert available({**pythons, "keras": "/nonexistent/python"}) == Devices("cpu", 2)


def test_gpus_that_no_framework_could_see_are_not_said_to_be_absent(programs: Any) -> None:
    """What is absent is the framework."""
    programs("nvidia-smi", "")
    pythons = {"torch": programs("one-python", "print(1)"), "keras": programs("none-python", "import tensorflow_none")}
    assert available(pythons) == Devices("cpu", 2)
    with pytest.raises(
        MissingError, match=r"keras: tensorflow_none is not installed for .*none-python; .*\[tensorflow\]"
    ):
        missing(Devices("gpu", 2), pythons)
    assert missing(Devices("gpu", 2), {"torch": pythons["torch"]}) == ""
