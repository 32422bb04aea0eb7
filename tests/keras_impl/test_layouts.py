"""Copies between devices are counted; what each strategy moves is compared with PyTorch's layout."""

import math

FLOAT = 8  # bytes
SIZES = {"steps": 1, "model": {"inputs": 10, "hidden": 20, "outputs": 5}, "data": {"batch": 6}}
HIDDEN = 6 * 20 * FLOAT  # an activation between linear1 and linear2


def layout(record, name, fault="", **changes):
    return record(name, fault, **changes).manifest.layout


def test_copies_are_counted_by_their_shapes(record):
    """As many bytes as the micro-batches have, in parts of any size."""
    found = layout(record, "simple_block", strategy="send_recv", devices=3, accumulate=4, **SIZES)
    assert math.fsum(one.bytes for one in found.transfers) == 4 * HIDDEN
