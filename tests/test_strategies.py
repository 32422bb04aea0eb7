"""Every strategy on other numbers of devices than the default, and what its layout must show."""

import pytest
from judged import passes_strict

SMALL = {"steps": 2}
SMALL_BLOCK = {"steps": 2, "model": {"out_channels": 4}, "data": {"size": 16, "batch": 6}}
TINY_TRANSFORMER = {
    "steps": 2,
    "model": {
        "vocabulary": 100, "d_model": 16, "heads": 2, "feed_forward": 22, "encoder_layers": 2, "decoder_layers": 2
    },
    "data": {"source": "synthetic", "batch": 6, "length": 5},
}  # fmt: skip
ONE_LAYER = {
    "steps": 2,
    "model": {**TINY_TRANSFORMER["model"], "encoder_layers": 1, "decoder_layers": 1},
    "data": {"source": "synthetic", "batch": 8, "length": 5},
}

# case, number of devices, changes: sizes that the devices divide, and sizes that they do not
ROWS = [
    ("simple_block/ddp", 1, SMALL),
    ("simple_block/tensor_parallel", 1, SMALL),
    ("linear_stack/pipeline", 1, {"model": {"width": 64}, **SMALL}),
    ("simple_block/data_parallel", 3, SMALL),
    ("simple_block/ddp@uneven", 3, SMALL),
    ("simple_block/ddp@accumulate", 3, SMALL),
    ("simple_block/ddp@dataset", 3, {"data": {"batch": 13}, **SMALL}),
    ("simple_block/all_reduce", 3, {"steps": 4}),
    ("simple_block/tensor_parallel", 3, SMALL),
    ("simple_block/send_recv", 3, SMALL),
    ("linear_stack/round_robin", 4, {"model": {"width": 64}, **SMALL}),
    ("linear_stack/pipeline", 4, {"model": {"width": 64}, **SMALL}),
    ("linear_stack/hybrid", 4, {"model": {"width": 64}, "data": {"batch": 16}, **SMALL}),
    ("residual_block/ddp", 3, SMALL_BLOCK),
    ("residual_block/data_parallel", 4, {**SMALL_BLOCK, "data": {"size": 16, "batch": 7}}),
    ("residual_block/branch_parallel", 3, SMALL_BLOCK),
    ("transformer/branch_parallel", 3, TINY_TRANSFORMER),
    ("transformer/tensor_parallel", 3, TINY_TRANSFORMER),
    ("transformer/send_recv", 4, TINY_TRANSFORMER),
    ("transformer/hybrid", 4, ONE_LAYER),
    ("simple_block/ddp", 8, SMALL),
]


@pytest.mark.parametrize(("name", "devices", "changes"), sorted(ROWS, key=lambda row: row[1]))
def test_a_strategy_on_so_many_devices(run, name, devices, changes):
    result = run(name, {**changes, "devices": devices})
    assert passes_strict(result), result
    assert len(result.devices["torch"]) == len(result.devices["keras"]) == devices
