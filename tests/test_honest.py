"""Honest and hard: cases on which rounding alone would mislead a tolerance, and which must match."""

import pytest
from slow import sampled

from parity.selftest.catalogue import ALL, resolve

BLOCK = {"model": {"out_channels": 4}, "data": {"batch": 8, "size": 16}}
SATURATED = {"weight_scale": {"linear1.weight": 50.0, "linear2.weight": 50.0}}

HARD = {
    # The true gradient of a bias before batch norm is zero: pure rounding, which Adam blows up to steps.
    "bias before batch norm": ("residual_block/single@adam", {**BLOCK, "loss": {"reduction": "sum"}}),
    "saturated cross entropy": ("two_linear/single@cross_entropy", SATURATED),
    "50 steps with ReLU": ("simple_block/single@adam", {"steps": 50}),
    "50 steps with ReLU and batch norm": ("residual_block/single", {**BLOCK, "steps": 50}),
    "tiny weights": ("linear_stack/single@adam", {"weight_scale": {"layers.2.weight": 1e-4}}),
    "huge weights": ("simple_block/single@adam", {"weight_scale": {"linear1.weight": 1e4}}),
    "odd sizes": ("residual_block/single", {"model": {"out_channels": 5}, "data": {"batch": 3, "size": 17}}),
    "a head size without a root": (
        "transformer/single@causal",
        {"model": {"vocabulary": 50, "d_model": 24, "heads": 3, "feed_forward": 20}, "data": {"batch": 3}},
    ),
    "micro-batches of different sizes": ("two_linear/single", {"accumulate": 5}),
    "clipping in fit": ("simple_block/single@fit", {"clip_norm": 0.05, "schedule": {"every": 2, "factor": 0.3}}),
    "decay in fit": ("simple_block/single@adamw", {"fit": True, "steps": 2}),
    "class ids in fit": ("two_linear/single@cross_entropy", {"fit": True}),
}


@pytest.mark.parametrize("what", sampled(HARD, "micro-batches of different sizes", "clipping in fit"))
def test_rounding_is_not_mistaken_for_a_difference(run, what):
    name, changes = HARD[what]
    result = run(name, changes)
    assert (result.verdict, result.findings) == ("match", [])


@pytest.mark.parametrize("precision", sampled(["bfloat16", "float16"], "bfloat16"))
@pytest.mark.parametrize(
    "name",
    sampled(["simple_block/single@adam", "residual_block/single", "transformer/single"], "simple_block/single@adam"),
)
def test_half_precision_matches(run, name, precision):
    small = {
        "residual_block/single": BLOCK,
        "transformer/single": {"model": {"vocabulary": 100, "d_model": 32, "feed_forward": 64}, "data": {"batch": 4}},
    }
    result = run(name, {**small.get(name, {}), "precision": precision})
    assert (result.verdict, result.findings) == ("match", [])
    assert all(precision in dtypes for dtypes in result.casts.values())


@pytest.mark.slow
def test_the_specimen_matches(run):
    result = run(next(resolve(fault) for fault in ALL if fault.at.case == "specimen/single"))
    assert (result.verdict, result.findings) == ("match", [])
