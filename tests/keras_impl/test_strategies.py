"""Each strategy computes what the single device does, wherever the mathematics is the same."""

import numpy as np
import pytest
import tensorflow as tf
from slow import sampled

from keras_impl import losses, models, optimizers
from keras_impl.record import precision
from keras_impl.record import weights as state
from keras_impl.strategies import all_reduce, pipeline, single
from keras_impl.strategies.tensor_parallel import shard_sizes
from parity.config import cases, weights
from parity.data.batches import Dataset

ULP = 2.0**-53
STATE = ("gradient/", "parameter/", "optimizer_state/")

STACK = {"model": {"layers": 6, "width": 8}, "data": {"source": "synthetic", "batch": 8}}
BLOCK = {"data": {"batch": 7}}
RESIDUAL = {"model": {"out_channels": 4}, "data": {"batch": 4, "size": 8}}
TRANSFORMER = {
    "model": {
        "vocabulary": 20, "d_model": 8, "heads": 2, "feed_forward": 10, "encoder_layers": 1, "decoder_layers": 1
    },
    "data": {"source": "synthetic", "batch": 4, "length": 5},
    "optimizer": {"momentum": 0.9},
}  # fmt: skip
UNDROPPED = TRANSFORMER | {"model": TRANSFORMER["model"] | {"dropout": 0.0}}  # each replica draws masks of its own
COUNTS = (1, 2, 3, 4)

# strategy, model, its sizes, changes, numbers of devices
ROWS = [
    ("data_parallel", "simple_block", BLOCK, {}, COUNTS),
    ("data_parallel", "simple_block", {"data": {"batch": 8}}, {"fit": True}, (1, 2, 4)),
    ("ddp", "simple_block", BLOCK, {}, COUNTS),
    ("ddp", "simple_block", BLOCK, {"clip_norm": 0.05}, (2, 3)),
    ("ddp", "simple_block", {"data": {"batch": 13}}, {"accumulate": 3}, (2, 4)),
    ("ddp", "simple_block", BLOCK, {"distribute_dataset": True}, (2, 3)),
    ("ddp", "transformer", UNDROPPED, {}, (2,)),
    ("send_recv", "linear_stack", STACK, {}, COUNTS),
    ("send_recv", "residual_block", RESIDUAL, {}, (2,)),
    ("send_recv", "transformer", TRANSFORMER, {}, (2, 4)),
    ("round_robin", "simple_block", BLOCK, {"clip_norm": 0.05}, COUNTS),
    ("round_robin", "residual_block", RESIDUAL, {}, (2,)),
    ("round_robin", "transformer", TRANSFORMER, {}, (3,)),
    ("pipeline", "linear_stack", STACK, {"accumulate": 4}, COUNTS),
    ("pipeline", "linear_stack", STACK, {"accumulate": 4, "pipeline": "1f1b"}, COUNTS),
    ("send_recv", "linear_stack", STACK, {"stage_blocks": (1, 5)}, (2,)),
    ("pipeline", "linear_stack", STACK, {"accumulate": 4, "stage_blocks": (1, 5)}, (2,)),
    ("hybrid", "linear_stack", STACK, {"accumulate": 2, "stage_blocks": (5, 1)}, (4,)),
    ("pipeline", "residual_block", RESIDUAL, {"accumulate": 2}, (2,)),
    ("hybrid", "linear_stack", STACK, {"accumulate": 2}, (4,)),
    ("hybrid", "two_linear", BLOCK, {}, (4,)),
    ("branch_parallel", "residual_block", RESIDUAL, {}, COUNTS),
    ("branch_parallel", "transformer", TRANSFORMER, {"clip_norm": 0.05}, (2, 3)),
    ("tensor_parallel", "simple_block", BLOCK, {}, COUNTS),
    ("tensor_parallel", "transformer", TRANSFORMER, {}, (2, 4)),
]
SAMPLE = [("ddp", "simple_block", {"distribute_dataset": True}, 3), ("hybrid", "two_linear", {}, 4)]  # run always
CASES = [
    pytest.param(*row[:4], devices, marks=[] if (*row[:2], row[3], devices) in SAMPLE else pytest.mark.slow)
    for row in ROWS
    for devices in row[4]
]


def after(trace, step):
    """The gradients of a step, and the state that it leaves."""
    tensors = trace.open("high", f"step-{step:06d}")
    return {key: np.asarray(array) for key, array in tensors.items() if key.startswith(STATE) and "@" not in key}


def alone(strategy, changes):
    """What the single device is asked: without the strategy's own options."""
    shared = {key: value for key, value in changes.items() if key in ("clip_norm", "accumulate")}
    return shared if strategy == "pipeline" or "clip_norm" in shared else {}


@pytest.mark.parametrize(("strategy", "model", "sizes", "changes", "devices"), CASES)
def test_a_strategy_computes_what_the_single_device_does(record, strategy, model, sizes, changes, devices):
    spread = record(model, strategy=strategy, devices=devices, steps=2, **sizes, **changes)
    reference = record(model, steps=2, **sizes, **alone(strategy, changes))
    for step in range(2):
        expected, received = after(reference, step), after(spread, step)
        assert received.keys() == expected.keys()
        for name, values in expected.items():
            scale = np.abs(values).max()
            assert np.abs(received[name] - values).max() <= 256 * ULP * max(scale, 1e-3), name


@pytest.mark.parametrize("strategy", sampled(["data_parallel", "ddp"], "data_parallel"))
def test_replicas_draw_their_own_samples_and_share_the_update(record, strategy):
    trace = record("simple_block", strategy=strategy, devices=3, steps=2, **BLOCK)
    reference = record("simple_block", steps=2, **BLOCK)
    drawn = [trace.open("high", "step-000000", replica)["sample/indices"] for replica in range(3)]
    whole = reference.open("high", "step-000000")["sample/indices"]
    assert np.array_equal(np.concatenate(drawn), whole)
    sums = sum(trace.open("high", "step-000000", r)["gradient/linear1.weight@local"] for r in range(3))
    assert np.allclose(sums, trace.open("high", "step-000000")["gradient/linear1.weight"], rtol=1e-13, atol=0)


@pytest.mark.slow
def test_the_loss_of_data_parallel_is_that_of_the_whole_batch(record):
    trace = record("simple_block", strategy="data_parallel", devices=3, steps=2, **BLOCK)
    reference = record("simple_block", steps=2, **BLOCK)
    for step in ("step-000000", "step-000001"):
        spread, whole = (np.asarray(one.open("high", step)["loss/loss"]) for one in (trace, reference))
        assert spread == pytest.approx(whole, rel=1e-14)


def test_all_reduce_trains_on_its_own_shards():
    """As one device does on the batches of all replicas put together."""
    case = cases.resolve("simple_block/single", {"strategy": "all_reduce", "devices": 3, "data": {"batch": 9}})
    dataset = Dataset(case)

    class Samples:
        def __len__(self):
            return dataset.size

        def __getitems__(self, indices):
            batch = dataset.batch(np.asarray(indices))
            return (tf.constant(batch.inputs[0]),), tf.constant(batch.target)

    def trained(strategy, steps, devices):
        made = strategy.place(
            lambda: models.build(case.model), lambda: optimizers.build(case), devices, (None, case.model.inputs)
        )
        state.load(made[0], weights.initial(case))
        strategy.train(*made, losses.build(case.loss), steps)
        return {value.name: value.numpy() for value in state.Weights(made[0]).parameters()}

    with precision.policy("float64"):
        steps = list(all_reduce.batches([Samples()] * 3, 9, 4, seed=1))
        one = tf.constant(1.0, tf.float64)
        whole = [
            [((tf.concat([part[0][0][0] for part in step], 0),), tf.concat([part[0][1] for part in step], 0), one)]
            for step in steps
        ]
        expected = trained(single, whole, ["CPU:0"])
        received = trained(all_reduce, steps, ["CPU:0", "CPU:1", "CPU:2"])
    for name, values in expected.items():
        assert np.abs(received[name] - values).max() <= 64 * ULP * np.abs(values).max(), name


@pytest.mark.slow
@pytest.mark.parametrize("local", [False, True])
def test_batch_norm_starts_from_replica_0_unless_told_otherwise(record, local):
    trace = record("residual_block", strategy="ddp", devices=2, steps=2, local_buffers=local, **RESIDUAL)
    before = [trace.open("high", "step-000000", r)["buffer/bn1.running_mean"] for r in range(2)]
    assert not np.array_equal(*before)
    for replica in range(2):
        step = trace.open("high", "step-000001", replica)
        mean = np.asarray(step["activation/conv1"]).mean(axis=(0, 2, 3))
        expected = 0.9 * before[replica if local else 0] + 0.1 * mean
        assert np.allclose(step["buffer/bn1.running_mean"], expected, rtol=1e-12, atol=1e-15)


@pytest.mark.slow
def test_data_parallel_evaluates_by_replica_0s_statistics(record):
    trace = record("residual_block", strategy="data_parallel", devices=2, steps=2, **RESIDUAL)
    statistics = trace.open("high", "step-000001")
    mean, variance = (statistics[f"buffer/bn1.running_{name}"] for name in ("mean", "var"))
    for replica in range(2):
        evaluation = trace.open("high", "step-000002", replica)
        scale, shift = (statistics[f"parameter/bn1.{name}"].reshape(-1, 1, 1) for name in ("weight", "bias"))
        centred = evaluation["activation/conv1"] - mean.reshape(-1, 1, 1)
        expected = centred / np.sqrt(variance + 1e-5).reshape(-1, 1, 1) * scale + shift
        assert np.allclose(evaluation["activation/bn1"], expected, rtol=1e-12, atol=1e-14)


def test_the_orders_of_a_pipeline():
    assert pipeline.order(0, 2, 3, "gpipe") == [
        *(("forward", i) for i in range(3)),
        *(("backward", i) for i in range(3)),
    ]
    first = [f"{direction[0]}{i}" for direction, i in pipeline.order(0, 2, 3, "1f1b")]
    last = [f"{direction[0]}{i}" for direction, i in pipeline.order(1, 2, 3, "1f1b")]
    assert first == ["f0", "f1", "b0", "f2", "b1", "b2"]
    assert last == ["f0", "b0", "f1", "b1", "f2", "b2"]


def test_shards_are_torch_chunks():
    assert [shard_sizes(20, n) for n in (1, 3, 8)] == [[20], [7, 7, 6], [3, 3, 3, 3, 3, 3, 2]]
