"""Findings say how often a line did something in a step, whether a side has an entry for each time or one with a count.

A line of a loop is made of each row of evidence: everything that a step of it holds is there three times.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from doctor_device_rows import DEVICE_ROWS
from doctor_evidence import Row, copied, evidence, place, source, step, tensor
from doctor_training_rows import TRAINING_ROWS
from doctor_value_rows import VALUE_ROWS

from parity.doctor import rules
from parity.doctor.evidence import Evidence

LISTS = ("copies", "losses", "broadcasts", "cuts", "soft")
COUNTED = [
    *("sync.bool", "sync.boolean_index", "sync.cpu", "sync.item", "sync.numpy", "sync.print"),
    *("copy.constant", "copy.parameter", "input.copied_again", "input.not_contiguous", "input.not_pinned"),
    *("loss.softmax_twice", "loss.sigmoid_twice", "loss.not_logarithms", "loss.raw_logits", "loss.shuffled_apart"),
    *("shape.loss_broadcast", "shape.class_axis", "function.eager"),
    *("learning.clipped_in_vain", "learning.send_without_backward"),
]
ROWS = [row for row in (*DEVICE_ROWS, *VALUE_ROWS, *TRAINING_ROWS) if row[1] in COUNTED]
Change = Callable[[list[Any]], list[Any]]


def entries(events: list[Any]) -> list[Any]:
    """Each event three times."""
    return [event for event in events for _ in range(3)]


def counts(events: list[Any]) -> list[Any]:
    """Each event once, with three times its count."""
    changed = [msgspec.structs.replace(event, count=3 * event.count) for event in events]
    return [
        msgspec.structs.replace(e, bytes=3 * e.bytes, again=3 * e.again, seconds=3 * e.seconds)
        if hasattr(e, "bytes")
        else e
        for e in changed
    ]


def looped(seen: Evidence, change: Change) -> Evidence:
    """The evidence with three times the events on each line; equal parts of a training in a row are one entry."""
    steps = [
        msgspec.structs.replace(
            each, events=counts(each.events), **{name: change(getattr(each, name)) for name in LISTS}
        )
        for each in seen.steps
    ]
    return msgspec.structs.replace(seen, steps=steps, eager=change(seen.eager))


def message(seen: Evidence, name: str) -> str:
    """What the only finding of that id says."""
    (finding,) = [finding for finding in rules.findings([seen]) if finding.id == name]
    return finding.message


@pytest.mark.parametrize("change", [entries, counts])
@pytest.mark.parametrize("row", ROWS, ids=[f"{row[1]}-{number}" for number, row in enumerate(ROWS)])
def test_a_finding_of_a_loop_says_how_often(row: Row, change: Change) -> None:
    often = re.findall(r"(\d+) times a step", message(looped(row[0], change), row[1]))
    assert [int(number) >= 3 for number in often] == [True]
    assert "This happens" not in message(row[0], row[1])


def test_each_of_them_is_tested() -> None:
    assert {row[1] for row in ROWS} == set(COUNTED)


def test_reads_of_several_devices_at_one_line_are_one_finding() -> None:
    reads = [
        copied("item", tensor([], device, origin=f"output of {name}"), "cpu", place("", "train.py:9"), count=2)
        for name, device in (("encoder", "cuda:0"), ("decoder", "cuda:1"))
    ]
    said = message(evidence(gpus=2, steps=[step(copies=reads)]), "sync.item")
    assert said == (
        "output of encoder (float32[] on cuda:0) and 1 more are read as a Python number, 4 times a step (8 bytes): "
        "the host waits for cuda:0 and cuda:1."
    )


def test_two_inputs_at_one_line_are_both_told() -> None:
    inputs = [source(tensor([8, 64], "cpu")), tensor([8, 8], "cpu", origin="input mask")]
    copies = [copied("to", each, "cuda:0", place("encoder", "model.py:10"), count=2, again=1) for each in inputs]
    said = message(evidence(steps=[step(copies=copies)]), "input.copied_again")
    assert "The input src is copied to cuda:0 twice a step" in said
    assert "The input mask is copied to cuda:0 twice a step" in said
