"""What the advice predicts from a case alone is what both frameworks are recorded to move and to hold."""

import math
from pathlib import Path

import pytest
from test_strategies import SMALL, SMALL_BLOCK, TINY_TRANSFORMER

from parity.advise.costs import memory
from parity.advise.describe import describe
from parity.advise.model import FLOAT, Model
from parity.advise.strategies import STRATEGIES, spread
from parity.config import cases
from parity.config.devices import obstacle
from parity.config.schema import Case
from parity.runtime.backend import Backend
from parity.runtime.job import Job
from parity.trace import manifest
from parity.trace.layout import Layout

ONE_STEP = {"steps": 1}
# A case for each strategy, with sizes that the devices do not divide where the strategy allows it.
SAMPLE = [
    ("simple_block/single", 3, SMALL),
    ("two_linear/round_robin", 3, SMALL),
    ("residual_block/data_parallel", 3, {**SMALL_BLOCK, "data": {"size": 8, "batch": 7}}),
    ("residual_block/ddp", 3, SMALL_BLOCK),
    ("simple_block/all_reduce", 3, SMALL),
    ("residual_block/send_recv", 2, SMALL_BLOCK),
    ("simple_block/pipeline", 3, SMALL),
    ("linear_stack/send_recv", 2, {"stage_blocks": (5, 1), "model": {"width": 64}, "data": {"batch": 4}}),
    ("two_linear/hybrid", 4, SMALL),
    ("residual_block/branch_parallel", 3, SMALL_BLOCK),
    ("simple_block/tensor_parallel", 3, SMALL),
    ("two_linear/fsdp@accumulate", 3, {"clip_norm": 0.1, **SMALL}),
]
MORE = [
    ("transformer/fsdp", 3, {"clip_norm": 0.1, "accumulate": 2, **TINY_TRANSFORMER}),
    ("transformer/branch_parallel", 2, TINY_TRANSFORMER),
    ("residual_block/branch_parallel", 2, {**SMALL_BLOCK, "model": {"in_channels": 3, "out_channels": 3}}),
    *((name, 2, {}) for name in cases.names()),
]


def recorded(backend: Backend, case: Case, folder: Path) -> Layout:
    """The layout of the first step of a case."""
    answer = backend.do(Job(case=case, runs=["low"], folder=str(folder)))
    assert answer.status == "done", answer.message
    return manifest.read(folder).layout


def held(layout: Layout, model: Model, devices: int) -> list[int]:
    """The bytes of the parameters that each device holds."""
    sizes = [0] * devices
    for name, places in layout.parameters.items():
        for device in places:
            whole = math.prod(model.weights[name])
            sizes[device] += FLOAT * (layout.shards[name][device] if name in layout.shards else whole)
    return sizes


def is_slow(side: str, row: tuple) -> bool:
    is_long = row[0] != "residual_block/send_recv" if side == "torch" else row[0].startswith("residual_block/")
    return row not in SAMPLE or is_long


@pytest.mark.parametrize(
    ("side", "name", "devices", "changes"),
    [
        pytest.param(
            side, *row, id=f"{side}-{row[0]}-{row[1]}-changes{n}", marks=pytest.mark.slow if is_slow(side, row) else []
        )
        for side in ("torch", "keras")
        for n, row in enumerate([*sorted(SAMPLE, key=lambda row: row[1]), *MORE])
    ],
)
def test_what_is_predicted_is_recorded(side, name, devices, changes, backends, tmp_path):
    case = cases.resolve(name, {**changes, **ONE_STEP, "devices": devices})
    if reason := obstacle(case) or case.distribution.side_obstacle(side):
        pytest.skip(reason)
    (backend,) = [backend for backend in backends if backend.name == side]
    model, layout = describe(case), recorded(backend, case, tmp_path)
    _, transfers, collectives = spread(case, model, side)
    assert (transfers, collectives) == (layout.transfers, layout.collectives)
    parameters = [device.parameters for device in memory(case, model, side)]
    if side == "torch" and case.distribution.is_gathered:
        parameters[1:] = [0] * (len(parameters) - 1)  # nn.DataParallel's replicas last for one pass only
    found = held(layout, model, len(parameters))
    if case.distribution.shards_parameters:  # the first shard is the largest, and the others are padded to its size
        assert parameters == [found[0]] * len(found)
    else:
        assert parameters == pytest.approx(found)


@pytest.mark.slow
def test_every_strategy_is_among_the_sample():
    assert {type(cases.resolve(name).distribution) for name, _, _ in SAMPLE} == set(STRATEGIES)
