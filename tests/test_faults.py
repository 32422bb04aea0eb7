"""Planted mistakes, several at once or at one precision only: each is found, placed and named.

The catalogue of single ones is run by tests/test_catalogue.py and benchmarks/selftest.py.
"""

import pytest
from judged import passes_strict

SMALL_BLOCK = {"model": {"out_channels": 4}, "data": {"batch": 4, "size": 16}}


def named(result) -> set[tuple]:
    return {(cause.id, cause.where, cause.torch, cause.keras) for cause in result.causes}


def test_two_faults_at_once_are_both_listed(run):
    """One hides the other's effect in every later tensor: each module is judged by its own inputs."""
    assert passes_strict(run("simple_block/single@adam"))
    faulty = run("simple_block/single@adam", keras="relu.slope+adam.epsilon")
    assert (faulty.first_divergence.step, faulty.first_divergence.name) == (0, "relu")
    assert {found[:2] for found in named(faulty)} == {("relu.slope", "relu"), ("adam.epsilon", "linear1.weight")}
    assert ("relu.slope", "relu", 0.0, 0.01) in named(faulty)


@pytest.mark.slow
def test_faults_on_both_sides_are_both_listed(run):
    faulty = run("residual_block/single", SMALL_BLOCK, torch="batch_norm.epsilon", keras="batch_norm.momentum")
    assert {found[0] for found in named(faulty)} == {"batch_norm.epsilon", "batch_norm.momentum"}
    assert {found[1] for found in named(faulty)} == {"bn1", "bn2", "shortcut.1"}


def test_a_fault_of_the_other_precision_is_not_planted(run):
    """The float32 faults leave the float64 runs alone: only the judgement of the low runs sees them."""
    faulty = run("simple_block/single", keras="relu.dropped_in_float32")
    assert faulty.verdict == "diverged"
    assert "noisier" in faulty.reason
    assert faulty.first_divergence.bits is None or faulty.first_divergence.bits > 20
