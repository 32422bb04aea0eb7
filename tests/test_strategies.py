"""Every strategy on other numbers of devices than the default, and what its layout must show."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from judged import passes_strict

from parity.config import cases
from parity.results import CaseResult, Report
from parity.runtime.backend import Backend
from parity.runtime.job import Answer, Job
from parity.subjects import Plan
from parity.subjects.run import BuiltIn

SMALL = {"steps": 2}
SMALL_BLOCK = {"steps": 2, "model": {"out_channels": 4}, "data": {"size": 16, "batch": 6}}
TINY_TRANSFORMER = {
    "steps": 2,
    "model": {
        "vocabulary": 100, "d_model": 16, "heads": 2, "feed_forward": 22, "encoder_layers": 2, "decoder_layers": 2
    },
    "data": {"source": "synthetic", "batch": 6, "length": 5},
}  # fmt: skip
ONE_LAYER = {
    "steps": 2,
    "model": {**TINY_TRANSFORMER["model"], "encoder_layers": 1, "decoder_layers": 1},
    "data": {"source": "synthetic", "batch": 8, "length": 5},
}

# case, number of devices, changes: sizes that the devices divide, and sizes that they do not
ROWS = [
    ("simple_block/ddp", 1, SMALL),
    ("simple_block/tensor_parallel", 1, SMALL),
    ("linear_stack/pipeline", 1, {"model": {"width": 64}, **SMALL}),
    ("simple_block/data_parallel", 3, SMALL),
    ("simple_block/ddp@uneven", 3, SMALL),
    ("simple_block/ddp@accumulate", 3, SMALL),
    ("simple_block/ddp@dataset", 3, {"data": {"batch": 13}, **SMALL}),
    ("simple_block/all_reduce", 3, {"steps": 4}),
    ("simple_block/tensor_parallel", 3, SMALL),
    ("simple_block/send_recv", 3, SMALL),
    ("linear_stack/round_robin", 4, {"model": {"width": 64}, **SMALL}),
    ("linear_stack/pipeline", 4, {"model": {"width": 64}, **SMALL}),
    ("linear_stack/hybrid", 4, {"model": {"width": 64}, "data": {"batch": 16}, **SMALL}),
    ("residual_block/ddp", 3, SMALL_BLOCK),
    ("residual_block/data_parallel", 4, {**SMALL_BLOCK, "data": {"size": 16, "batch": 7}}),
    ("residual_block/branch_parallel", 3, SMALL_BLOCK),
    ("transformer/branch_parallel", 3, TINY_TRANSFORMER),
    ("transformer/tensor_parallel", 3, TINY_TRANSFORMER),
    ("transformer/send_recv", 4, TINY_TRANSFORMER),
    ("transformer/hybrid", 4, ONE_LAYER),
    ("simple_block/ddp", 8, SMALL),
]


@pytest.mark.parametrize(
    ("name", "devices", "changes"),
    [
        pytest.param(*row, marks=[] if row[:2] == ("simple_block/tensor_parallel", 1) else pytest.mark.slow)
        for row in sorted(ROWS, key=lambda row: row[1])
    ],
)
def test_a_strategy_on_so_many_devices(run, name, devices, changes):
    result = run(name, {**changes, "devices": devices})
    assert passes_strict(result), result
    assert len(result.devices["torch"]) == len(result.devices["keras"]) == devices


class Faulty:
    """A side with a fault in its distributed trainings."""

    def __init__(self, backend: Backend, fault: str) -> None:
        self.name, self.folder = backend.name, backend.folder
        self._backend, self._fault = backend, fault

    def do(self, job: Any) -> Answer:
        is_distributed = isinstance(job, Job) and job.case and job.case.distribution.is_distributed
        return self._backend.do(msgspec.structs.replace(job, fault=self._fault) if is_distributed else job)


def of_torch_alone(backends: list[Backend], folder: Path, fault: str = "") -> CaseResult:
    case = cases.resolve("simple_block/fsdp", SMALL)
    sides = [Faulty(backend, fault) for backend in backends]
    return BuiltIn(case).compared(sides, Plan([case], folder, None), Report())


@pytest.mark.slow
def test_a_strategy_that_keras_does_not_have_is_compared_with_a_single_device(backends, tmp_path):
    result = of_torch_alone(backends, tmp_path)
    assert (result.verdict, list(result.devices)) == ("match", ["torch"])
    assert result.against_single["torch"].compared > 20
    assert "keras.distribution" in result.against_single["keras"].skipped
    assert result.not_compared[0].startswith("keras is skipped")
    assert result.checks["layout"].sides["torch"].shards["linear1.weight"] == [100, 100]


@pytest.mark.slow
def test_a_fault_in_it_is_seen(backends, tmp_path):
    result = of_torch_alone(backends, tmp_path, "mse.reduction")
    assert (result.verdict, result.reason) == ("diverged", "step 0: loss: 0.0 bits")
