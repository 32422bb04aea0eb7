"""Every strategy trains as a single device does, where the mathematics is the same."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from small_cases import small

from parity.config.devices import distributed_sampler, obstacle
from torch_impl.strategies import send_recv

STRATEGIES = {
    "linear_stack": ["round_robin", "send_recv", "pipeline", "hybrid"],
    "simple_block": [
        "round_robin", "data_parallel", "ddp", "send_recv", "pipeline", "hybrid", "tensor_parallel", "fsdp",
    ],
    "two_linear": ["data_parallel", "ddp", "send_recv", "fsdp"],
    "residual_block": ["round_robin", "branch_parallel", "send_recv", "pipeline"],
    "transformer": [
        "round_robin", "branch_parallel", "data_parallel", "ddp", "send_recv", "pipeline", "hybrid", "tensor_parallel",
        "fsdp",
    ],
}  # fmt: skip
# Micro-batches of one size; batch norm sees the whole batch.
WHOLE = {"pipeline": {"accumulate": 4, "data": {"batch": 12}}, "hybrid": {"accumulate": 2, "data": {"batch": 12}}}
UNCUT = {"accumulate": 1}
# Each replica and each micro-batch would draw dropout masks of its own.
UNDROPPED = ("data_parallel", "ddp", "pipeline", "hybrid", "fsdp")


def changes(model, strategy):
    rates = {"model": {"dropout": 0.0}} if model == "transformer" and strategy in UNDROPPED else {}
    return (UNCUT if model == "residual_block" else WHOLE.get(strategy, {})) | rates


def matrix():
    """Every combination that n devices allow."""
    for devices in (1, 2, 3, 4):
        for model, strategies in STRATEGIES.items():
            for strategy in strategies:
                if not obstacle(small(model, strategy, devices, changes(model, strategy))):
                    marks = [] if (devices, model) == (3, "simple_block") else pytest.mark.slow
                    yield pytest.param(devices, model, strategy, marks=marks)


def same(single, other, kinds=("gradient/", "parameter/", "optimizer_state/")):
    """Equal within 64 ulp of float64, to the largest value of each tensor."""
    for stem in single.stems("high"):
        one = single.open("high", stem)
        parts = [other.open("high", stem, replica) for replica in range(other.replicas)]
        for key in one:
            if key.startswith(kinds) and not key.endswith("@local"):
                for part in [part for part in parts if key in part] or [{}]:
                    assert key in part, f"{stem} {key}"
                    wanted, got = np.asarray(one[key]), np.asarray(part[key])
                    scale = max(abs(wanted).max(), 1e-3)
                    assert abs(wanted - got).max() <= 64 * np.finfo(np.float64).eps * scale, f"{stem} {key}"


@pytest.mark.parametrize(("devices", "model", "strategy"), list(matrix()))
def test_a_strategy_equals_a_single_device(record, devices, model, strategy):
    changed = changes(model, strategy)
    single = record(model, "single", devices, changed | {"accumulate": 1})
    same(single, record(model, strategy, devices, changed))


@pytest.mark.parametrize(
    ("strategy", "changed"),
    [
        ("ddp", {"accumulate": 3}),
        ("ddp", {"clip_norm": 0.1}),
        ("data_parallel", {"clip_norm": 0.1, "schedule": {"every": 1}}),
        ("pipeline", {"accumulate": 4, "data": {"batch": 12}, "pipeline": "1f1b"}),
        ("pipeline", {"accumulate": 4, "data": {"batch": 12}, "stage_blocks": (1, 2)}),
        ("send_recv", {"stage_blocks": (1, 2)}),
        ("ddp", {"loss": {"reduction": "sum"}, "optimizer": {"kind": "sgd", "learning_rate": 0.001}}),
    ],
)
def test_a_variant_equals_a_single_device(record, strategy, changed):
    single = record("simple_block", "single", 2, changed | {"accumulate": 1, "pipeline": "gpipe", "stage_blocks": ()})
    spread = record("simple_block", strategy, 2, changed)
    same(single, spread)
    if "stage_blocks" in changed:  # only the first layer is on device 0; the ReLU has no parameters
        places = spread.manifest.layout.parameters
        assert {name: places[name] for name in ("linear1.weight", "linear2.weight")} == {
            "linear1.weight": [0],
            "linear2.weight": [1],
        }
        assert spread.manifest.layout.compute["relu"] == [1]


@pytest.mark.parametrize("devices", [2, 3])
def test_local_gradients_add_up_to_the_reduced_one(record, devices):
    for strategy in ("ddp", "data_parallel"):
        trace = record("simple_block", strategy, devices)
        replicas = [trace.open("high", "step-000000", replica) for replica in range(devices)]
        for name in ("linear1.weight", "linear2.bias"):
            total = sum(np.asarray(replica[f"gradient/{name}@local"]) for replica in replicas)
            assert total == pytest.approx(np.asarray(replicas[0][f"gradient/{name}"]), rel=1e-12, abs=1e-15)


def test_ranks_drift_only_with_buffers_of_their_own(record):
    def evaluated(changed):
        trace = record("residual_block", "ddp", 2, changed)
        before = [np.asarray(trace.open("high", "step-000001", r)["buffer/bn1.running_mean"]) for r in (0, 1)]
        return trace, before

    trace, means = evaluated({"local_buffers": True})
    assert trace.manifest.layout.collectives.keys() == {"all_reduce"}
    assert abs(means[0] - means[1]).max() > 1e-3
    trace, _ = evaluated({})
    assert trace.manifest.layout.collectives.keys() == {"all_reduce", "broadcast"}


@pytest.mark.parametrize("devices", [2, 3])
def test_all_reduce_draws_the_samplers_shards(record, devices):
    changed = {"steps": 40, "every": 40, "data": {"batch": 60}}
    trace = record("simple_block", "all_reduce", devices, changed)
    size, each = 442, 60 // devices
    for rank in range(devices):
        order = [distributed_sampler(size, devices, trace.case.seed, epoch)[rank] for epoch in range(8)]
        batches = [epoch[i : i + each] for epoch in order for i in range(0, len(epoch), each)]
        for step in (0, 39):
            drawn = trace.open("high", f"step-{step:06d}", rank)["sample/indices"]
            assert list(np.asarray(drawn)) == batches[step]


def test_all_reduce_trains_on_the_mean_of_its_shards(record):
    trace = record("simple_block", "all_reduce", 2)
    for stem in ("step-000000", "step-000001"):
        first, second = (trace.open("high", stem, rank) for rank in (0, 1))
        for key in first:
            if key.startswith(("gradient/", "parameter/")) and not key.endswith("@local"):
                assert np.array_equal(first[key], second[key]), key


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3])
def test_each_replica_notes_its_own_samples(record, devices):
    whole = record("simple_block", "single", devices).open("high", "step-000001")["sample/indices"]
    for strategy in ("ddp", "data_parallel"):
        trace = record("simple_block", strategy, devices)
        parts = [trace.open("high", "step-000001", replica)["sample/indices"] for replica in range(devices)]
        assert np.concatenate(parts).tolist() == np.asarray(whole).tolist()


@pytest.mark.slow
def test_shapes_are_announced_once_and_again_when_the_inputs_have_others(monkeypatch):
    told, sent = [], []
    monkeypatch.setattr(dist, "send_object_list", lambda objects, to: told.append((objects[0][0][0], to)))
    monkeypatch.setattr(dist, "send", lambda tensor, to: sent.append((tensor.shape, to)))
    announced = {}
    for rows in (4, 4, 3, 4):
        send_recv.send((torch.zeros(rows, 2),), 1, (torch.Size([rows]),), announced)
    assert told == [((4, 2), 1), ((3, 2), 1)]
    assert sent == [((rows, 2), 1) for rows in (4, 4, 3, 4)]


@pytest.mark.slow
def test_what_was_announced_is_received_in_that_shape(monkeypatch):
    told = iter([[((4, 2), torch.float32, True)], [((3, 2), torch.float32, True)]])
    monkeypatch.setattr(dist, "recv_object_list", lambda objects, source: objects.__setitem__(0, next(told)))
    monkeypatch.setattr(dist, "recv", lambda tensor, source: tensor.fill_(1.0))
    announced = {}
    for rows in (4, 4, 3, 4):
        (got,) = send_recv.receive(0, torch.device("cpu"), (torch.Size([rows]),), announced)
        assert got.shape == (rows, 2) and got.requires_grad and bool((got == 1).all())
