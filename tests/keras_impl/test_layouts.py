"""The layout is what TensorFlow ran: each strategy's, and what a planted mistake makes of it."""

import math

import pytest
from slow import sampled

from parity.trace.layout import Transfer

FLOAT = 8  # bytes
SIZES = {"steps": 1, "model": {"inputs": 10, "hidden": 20, "outputs": 5}, "data": {"batch": 6}}
HIDDEN = 6 * 20 * FLOAT  # an activation between linear1 and linear2
RESIDUAL = {"steps": 2, "model": {"out_channels": 4}, "data": {"batch": 4, "size": 8}}  # test_strategies.py records it
IMAGE = 4 * 8 * 8 * FLOAT  # for each channel
TRANSFORMER = {
    "steps": 1,
    "model": {"vocabulary": 20, "d_model": 8, "heads": 2, "feed_forward": 10, "encoder_layers": 1},
    "data": {"source": "synthetic", "batch": 4, "length": 5},
}
WORDS = 4 * 5 * 8 * FLOAT  # a sequence of embedded words
GRADIENTS = (10 * 20 + 20 + 20 * 5 + 5) * FLOAT
ADAM = {"optimizer": {"kind": "adam"}}


def layout(record, name, fault="", **changes):
    return record(name, fault, **changes).manifest.layout


def moved(*ways):
    return sorted(Transfer(what=what, source=source, target=target, bytes=size) for what, source, target, size in ways)


def test_a_single_device_does_everything(record):
    manifest = record("simple_block", "", devices=2, **SIZES, **ADAM).manifest
    found = manifest.layout
    assert manifest.classes == {"": "SimpleBlock", "linear1": "Dense", "relu": "ReLU", "linear2": "Dense"}
    assert found.devices == ["CPU (logical)"] * 2
    assert set(map(tuple, found.parameters.values())) == set(map(tuple, found.optimizer_state.values())) == {(0,)}
    assert found.compute == found.backward == {"linear1": [0], "linear2": [0], "relu": [0]}
    assert found.transfers == []
    assert found.collectives == {}


@pytest.mark.parametrize("strategy", sampled(["data_parallel", "ddp", "all_reduce"], "ddp"))
@pytest.mark.parametrize("devices", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_replicas_hold_copies_and_reduce_the_gradients(record, strategy, devices):
    found = layout(record, "simple_block", strategy=strategy, devices=devices, **SIZES, **ADAM)
    everywhere = list(range(devices))
    for mapping in (found.parameters, found.optimizer_state, found.compute, found.backward):
        assert all(held == everywhere for held in mapping.values())
    assert found.transfers == []
    assert found.collectives == {"all_reduce": GRADIENTS}
    assert found.replicas == devices


@pytest.mark.slow
def test_ddp_broadcasts_the_buffers(record):
    buffers = 2 * 3 * 4 * FLOAT  # mean and variance of three batch norms
    shared, alone = (
        layout(record, "residual_block", strategy="ddp", devices=2, local_buffers=local, **RESIDUAL).collectives
        for local in (False, True)
    )
    assert shared["broadcast"] == buffers
    assert alone.keys() == {"all_reduce"}


def test_round_robin_moves_the_activations_to_and_fro(record):
    found = layout(record, "simple_block", strategy="round_robin", devices=2, **SIZES, **ADAM)
    assert found.compute == found.backward == {"linear1": [0], "relu": [1], "linear2": [0]}
    assert set(map(tuple, found.optimizer_state.values())) == {(0,)}
    ways = [(what, i, 1 - i, HIDDEN) for what in ("activation", "gradient") for i in (0, 1)]
    assert found.transfers == moved(*ways)


@pytest.mark.parametrize(
    "changes",
    [{"strategy": "send_recv"}, pytest.param({"strategy": "pipeline", "accumulate": 2}, marks=pytest.mark.slow)],
)
def test_stages_hand_activations_on_and_gradients_back(record, changes):
    found = layout(record, "simple_block", devices=3, **SIZES, **ADAM, **changes)
    assert found.compute == found.backward == {"linear1": [0], "relu": [1], "linear2": [2]}
    assert found.parameters["linear2.bias"] == found.optimizer_state["linear2.bias.exp_avg"] == [2]
    assert found.transfers == moved(
        *[("activation", i, i + 1, HIDDEN) for i in (0, 1)], *[("gradient", i + 1, i, HIDDEN) for i in (0, 1)]
    )


@pytest.mark.slow
def test_hybrid_has_a_pipeline_in_each_replica(record):
    found = layout(record, "simple_block", strategy="hybrid", devices=4, **SIZES)
    assert found.compute == found.backward == {"linear1": [0, 2], "relu": [0, 2], "linear2": [1, 3]}
    assert found.transfers == moved(
        *[("activation", i, i + 1, HIDDEN // 2) for i in (0, 2)],
        *[("gradient", i + 1, i, HIDDEN // 2) for i in (0, 2)],
    )
    assert found.collectives == {"all_reduce": GRADIENTS}  # of a replica, by both stages
    assert found.replicas == 2


@pytest.mark.slow
def test_a_shortcut_runs_beside_the_main_path(record):
    found = layout(record, "residual_block", strategy="branch_parallel", devices=3, **RESIDUAL)
    branch = {"shortcut.0", "shortcut.1"}
    assert {name for name, held in found.compute.items() if held == [1]} == branch
    assert {name for name, held in found.backward.items() if held == [1]} == branch
    assert found.transfers == moved(
        ("activation", 0, 1, 3 * IMAGE), ("activation", 1, 0, 4 * IMAGE), ("gradient", 0, 1, 4 * IMAGE)
    )


@pytest.mark.slow
def test_projections_run_beside_each_other(record):
    found = layout(record, "transformer", strategy="branch_parallel", devices=3, **TRANSFORMER)
    attention = "transformer.encoder.layers.0.self_attn"
    assert found.compute[attention] == found.backward[attention] == [0, 1, 2]
    assert found.parameters[f"{attention}.in_proj_weight"] == [0, 1, 2]
    assert found.parameters[f"{attention}.out_proj.weight"] == [0]
    # Five attention layers; what both of the decoder's take from the encoder goes to a device only once.
    ways = [("activation", 0, i, 4 * WORDS) for i in (1, 2)] + [("activation", i, 0, 5 * WORDS) for i in (1, 2)]
    ways += [("gradient", 0, i, 5 * WORDS) for i in (1, 2)] + [("gradient", i, 0, 5 * WORDS) for i in (1, 2)]
    assert found.transfers == moved(*ways)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3])
def test_a_pair_is_split_over_the_devices(record, devices):
    found = layout(record, "simple_block", strategy="tensor_parallel", devices=devices, **SIZES)
    everywhere = list(range(devices))
    for name in ("linear1", "linear2"):
        assert found.compute[name] == found.backward[name] == found.parameters[f"{name}.weight"] == everywhere
    assert found.parameters["linear2.bias"] == [0]
    inputs, outputs = 6 * 10 * FLOAT, 6 * 5 * FLOAT
    ways = [("activation", 0, i, inputs) for i in everywhere[1:]]
    ways += [("activation", i, 0, outputs) for i in everywhere[1:]]
    ways += [("gradient", 0, i, outputs) for i in everywhere[1:]]
    found_forward = [one for one in found.transfers if one.what == "activation"]
    assert found_forward == [one for one in moved(*ways) if one.what == "activation"]
    assert set(moved(*ways)) <= set(found.transfers)


def test_a_moved_layer_is_seen(record):
    found = layout(record, "simple_block", "placement.layer", strategy="round_robin", devices=2, **SIZES)
    assert found.parameters["linear2.bias"] == found.compute["linear2"] == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "strategy", "sizes", "module"),
    [
        ("simple_block", "round_robin", SIZES, "relu"),
        ("simple_block", "send_recv", SIZES, "linear2"),
        ("residual_block", "branch_parallel", RESIDUAL, "shortcut.0"),
        ("simple_block", "tensor_parallel", SIZES, "linear1"),
    ],
)
def test_a_backward_pass_left_on_device_0_is_seen(record, name, strategy, sizes, module):
    pinned = layout(record, name, strategy=strategy, devices=2, **sizes)
    left = layout(record, name, "placement.backward", strategy=strategy, devices=2, **sizes)
    assert 1 in pinned.backward[module]
    assert left.compute == pinned.compute
    assert left.backward[module] == [0]


def test_copies_are_counted_by_their_shapes(record):
    """As many bytes as the micro-batches have, in parts of any size."""
    found = layout(record, "simple_block", strategy="send_recv", devices=3, accumulate=4, **SIZES)
    assert math.fsum(one.bytes for one in found.transfers) == 4 * HIDDEN
