"""Batch norm of several ranks, the orders of a pipeline, and shards.

That the strategies train as PyTorch's do, which train as a single device does, is what their traces are compared for.
"""

import numpy as np
import pytest

from keras_impl.strategies import pipeline
from keras_impl.strategies.tensor_parallel import shard_sizes

RESIDUAL = {"model": {"out_channels": 4}, "data": {"batch": 4, "size": 8}}


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
