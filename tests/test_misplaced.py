"""Mistakes of distribution, planted: each is found and named, on a case that is shown to match without it."""

import pytest
from judged import passes_strict

from parity.config import cases
from parity.results import LayoutCheck
from parity.runtime.job import Job

ROTATED = ("sample", "indices", 1)

# fault, side, case, its changes, the first tensor that tells: step, kind, name, replica
PLANTED = [
    ("gradient.sum", "keras", "simple_block/ddp", {}, (0, "gradient", "linear2.bias", 0)),
    ("gradient.sum", "torch", "simple_block/all_reduce", {}, (0, "gradient", "linear2.bias", 0)),
    ("shard.rotated", "torch", "simple_block/ddp", {}, (0, *ROTATED)),
    ("shard.rotated", "keras", "simple_block/ddp", {}, (0, *ROTATED)),
    ("sampler.epoch", "torch", "simple_block/all_reduce", {}, (3, "sample", "indices", 0)),
    ("sampler.epoch", "keras", "simple_block/all_reduce", {}, (3, "sample", "indices", 0)),
    ("send_recv.gradient", "torch", "two_linear/send_recv", {}, (0, "gradient", "linear1.weight", 0)),
    ("clip.before_reduction", "keras", "simple_block/ddp@clip", {}, (0, "gradient", "linear2.bias", 0)),
    ("batch_norm.buffers", "keras", "residual_block/ddp", {"steps": 2}, (1, "buffer", "bn1.running_mean", 0)),
]  # fmt: skip

# fault, side, case, what the layout's difference begins with
MISPLACED = [
    ("placement.layer", "torch", "two_linear/round_robin", "parameters: linear2.bias: torch on 0, keras on 1"),
    ("placement.layer", "keras", "simple_block/round_robin", "parameters: linear2.bias: torch on 0, keras on 1"),
    ("placement.backward", "keras", "simple_block/round_robin", "backward: relu: torch on 1, keras on 0"),
]


@pytest.mark.parametrize(("fault", "side", "name", "changes", "place"), PLANTED)
def test_a_planted_mistake_is_found_and_placed(run, fault, side, name, changes, place):
    clean = run(name, changes)
    assert passes_strict(clean), clean
    faulty = run(name, changes, **{side: fault})
    assert faulty.verdict == "diverged"
    first = faulty.first_divergence
    assert (first.step, first.kind, first.name, first.replica) == place


@pytest.mark.parametrize(("fault", "side", "name", "difference"), MISPLACED)
def test_a_misplaced_computation_is_found_and_named(run, fault, side, name, difference):
    clean = run(name)
    assert passes_strict(clean), clean
    faulty = run(name, **{side: fault})
    layout = faulty.checks["layout"]
    assert isinstance(layout, LayoutCheck)
    assert faulty.verdict == layout.verdict == "diverged"
    assert any(line.startswith(difference) for line in layout.differences), layout.differences


def test_an_activation_that_is_not_moved_is_the_frameworks_own_error(backends, tmp_path):
    case = cases.resolve("two_linear/round_robin")
    answer = backends[0].do(Job(case=case, runs=["low"], folder=str(tmp_path), fault="placement.move"))
    assert answer.status == "error"
    assert "Expected all tensors to be on the same device" in answer.message
