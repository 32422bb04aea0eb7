"""What is said of where things happened, and that planted mistakes show in it."""

import pytest
from small_cases import small

from parity.runtime.job import Job
from parity.trace.layout import Transfer

FLOAT = 8  # bytes; the traces are of float64


def transfer(what, source, target, size):
    return Transfer(what=what, source=source, target=target, bytes=size)


def test_a_single_device_moves_nothing(record):
    manifest = record("simple_block", "single", 2).manifest
    layout = manifest.layout
    assert manifest.classes == {"": "SimpleBlock", "linear1": "Linear", "relu": "ReLU", "linear2": "Linear"}
    assert layout.devices == ["CPU"]
    assert set(map(tuple, layout.parameters.values())) == {(0,)}
    assert layout.compute == layout.backward == {"linear1": [0], "relu": [0], "linear2": [0]}
    assert layout.transfers == []
    assert layout.collectives == {}


@pytest.mark.parametrize("devices", [3])
def test_round_robin(record, devices):
    layout = record("linear_stack", "round_robin", devices).manifest.layout
    assert layout.devices == ["CPU (virtual)"] * 3
    for i in range(5):
        assert layout.parameters[f"layers.{i}.weight"] == [i % 3]
        assert layout.optimizer_state[f"layers.{i}.bias.momentum_buffer"] == [i % 3]
        assert layout.compute[f"layers.{i}"] == layout.backward[f"layers.{i}"] == [i % 3]
    size = 13 * 64 * FLOAT
    forward = [("activation", 0, 1, 2 * size), ("activation", 1, 2, size), ("activation", 2, 0, size)]
    backward = [("gradient", 0, 2, size), ("gradient", 1, 0, 2 * size), ("gradient", 2, 1, size)]
    assert layout.transfers == [transfer(*one) for one in forward + backward]


def test_data_parallel(record):
    layout = record("residual_block", "data_parallel", 2).manifest.layout
    parameters = 3 * 5 * 9 + 5 * 5 * 9 + 3 * 5 + 3 * 5 + 3 * 2 * 5
    image = 8 * 8 * FLOAT
    assert layout.replicas == 2
    assert set(map(tuple, layout.parameters.values())) == {(0,)}
    assert layout.compute["conv1"] == layout.backward["conv1"] == [0, 1]
    assert layout.transfers == [
        transfer("gradient", 0, 1, 6 * 5 * image),
        transfer("gradient", 1, 0, parameters * FLOAT),
        transfer("input", 0, 1, 6 * 3 * image),
        transfer("output", 1, 0, 6 * 5 * image),
        transfer("parameter", 0, 1, (parameters + 3 * 2 * 5) * FLOAT),  # and the buffers
    ]


def test_ddp(record):
    layout = record("simple_block", "ddp", 2).manifest.layout
    assert layout.devices == ["CPU (process)"] * 2
    assert layout.parameters["linear1.weight"] == layout.compute["linear1"] == [0, 1]
    assert layout.transfers == []
    assert layout.collectives == {"all_reduce": (10 * 19 + 19 + 19 * 5 + 5) * FLOAT}


@pytest.mark.parametrize("strategy", ["send_recv", "pipeline"])
def test_stages(record, strategy):
    layout = record("residual_block", strategy, 2, {"accumulate": 1}).manifest.layout
    assert layout.parameters["bn1.weight"] == layout.compute["conv1"] == layout.backward["conv1"] == [0]
    assert layout.parameters["conv2.weight"] == layout.compute["shortcut.0"] == layout.backward["bn2"] == [1]
    image = 13 * 8 * 8 * FLOAT
    # The input is carried along for the shortcut, and needs no gradient.
    assert layout.transfers == [transfer("activation", 0, 1, 8 * image), transfer("gradient", 1, 0, 5 * image)]


@pytest.mark.parametrize("devices", [3])
def test_branches(record, devices):
    layout = record("transformer", "branch_parallel", devices).manifest.layout
    attention = "transformer.decoder.layers.0.multihead_attn"
    assert layout.parameters[f"{attention}.in_proj_weight"] == [0, 1, 2]
    assert layout.parameters[f"{attention}.out_proj.weight"] == [0]
    assert layout.compute[attention] == layout.backward[attention] == [0, 1, 2]
    assert layout.compute["output"] == [0]
    size = 6 * 5 * 13 * 12 * FLOAT  # six attentions
    ways = [(0, 1), (0, 2), (1, 0), (2, 0)]
    assert layout.transfers == [transfer(what, *way, size) for what in ("activation", "gradient") for way in ways]


@pytest.mark.parametrize("devices", [3])
def test_tensor_parallel(record, devices):
    layout = record("simple_block", "tensor_parallel", devices).manifest.layout
    assert layout.parameters["linear1.weight"] == layout.compute["linear1"] == [0, 1, 2]
    assert layout.collectives == {"all_reduce": 13 * 5 * FLOAT}
    shards = record("simple_block", "tensor_parallel", devices).open("high", "step-000000")
    sizes = [shards[f"activation/linear1@shard{rank}"].shape for rank in range(3)]
    assert sizes == [(13, 7), (13, 7), (13, 5)]


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_shards(record, devices):
    layout = record("simple_block", "fsdp", devices).manifest.layout
    assert layout.compute == {name: list(range(devices)) for name in ("linear1", "relu", "linear2")}
    if devices == 1:
        assert layout.shards == layout.collectives == {}
        return
    # 19 and 5 rows in parts of at most 7 and 2.
    assert layout.shards["linear1.weight"] == layout.shards["linear1.weight.momentum_buffer"] == [70, 70, 50]
    assert layout.shards["linear2.weight"] == [2 * 19, 2 * 19, 19]
    given = 7 * (10 + 1) + 2 * (19 + 1)  # elements of a rank's shards, the last ones padded
    assert layout.collectives == {"all_gather": 2 * given * FLOAT, "reduce_scatter": 3 * given * FLOAT}


def test_an_activation_that_is_not_moved_is_the_frameworks_own_error(torch_backend, tmp_path):
    case = small("linear_stack", "round_robin", 2, {})
    answer = torch_backend.do(Job(case=case, runs=["high"], folder=str(tmp_path), fault="placement.move"))
    assert answer.status == "error"
    assert "Expected all tensors to be on the same device" in answer.message


@pytest.mark.slow
def test_a_rank_that_raises_ends_its_case_alone(torch_backend, record, tmp_path):
    case = small("simple_block", "ddp", 2, {})
    answer = torch_backend.do(Job(case=case, runs=["high"], folder=str(tmp_path), fault="rank.raises"))
    assert answer.status == "error"
    assert "torch rank 1: RuntimeError: planted in rank 1" in answer.message
    assert record("simple_block", "ddp", 2, {"seed": 1}).manifest.layout.replicas == 2
