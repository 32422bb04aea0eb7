"""Planted mistakes: each is found and placed, on a case that is shown to match without it."""

import pytest
from judged import passes_strict

SMALL_TRANSFORMER = {"model": {"vocabulary": 100, "d_model": 32, "feed_forward": 64}, "data": {"batch": 4}}
SMALL_BLOCK = {"model": {"out_channels": 4}, "data": {"batch": 4, "size": 16}}
TINY_RATE = {"optimizer": {"kind": "adamw", "learning_rate": 1e-5, "weight_decay": 0.01}}

FIRST_NORM = "transformer.encoder.layers.0.norm1"

# fault, side, case, its changes, then the first tensor that tells: step, kind, name
PLANTED = [
    ("layer_norm.epsilon", "keras", "transformer/single", SMALL_TRANSFORMER, (0, "activation", FIRST_NORM)),
    ("adam.epsilon_placement", "keras", "simple_block/single@adam", {}, (0, "update", "linear1.weight")),
    ("batch_norm.momentum", "keras", "residual_block/single", SMALL_BLOCK, (0, "buffer", "bn1.running_mean")),
    ("adamw.weight_decay", "keras", "simple_block/single@adamw", TINY_RATE, (0, "update", "linear1.weight")),
    ("relu.dropped_in_float32", "keras", "simple_block/single", {}, (0, "activation", "relu")),
    ("relu.dropped_in_float32", "torch", "residual_block/single", SMALL_BLOCK, (0, "activation", "relu")),
    ("matmul.bfloat16_in_float32", "keras", "linear_stack/single", {}, (0, "activation", "layers.0")),
    ("matmul.bfloat16_in_float32", "torch", "simple_block/single", {}, (0, "activation", "linear1")),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "side", "name", "changes", "place"), PLANTED)
def test_a_planted_mistake_is_found_and_placed(run, fault, side, name, changes, place):
    clean = run(name, changes)
    assert passes_strict(clean), clean
    faulty = run(name, changes, **{side: fault})
    assert not passes_strict(faulty)
    if faulty.findings:  # a lesser precision: the side is named as well
        assert [(finding.side, finding.where) for finding in faulty.findings] == [(side, "/".join(place[1:]))]
    else:
        first = faulty.first_divergence
        assert (first.step, first.kind, first.name) == place


def test_a_fault_of_the_other_precision_is_not_planted(run):
    """The float32 faults leave the float64 runs alone: only the judgement of the low runs sees them."""
    faulty = run("simple_block/single", keras="relu.dropped_in_float32")
    assert faulty.verdict == "diverged"
    assert "noisier" in faulty.reason
    assert faulty.first_divergence.bits is None or faulty.first_divergence.bits > 20
